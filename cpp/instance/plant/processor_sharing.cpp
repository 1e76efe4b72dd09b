#include "instance/plant/processor_sharing.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "instance/instance.h"
#include "instance/plant/shared_progress.h"
#include "sim/value.h"

namespace spillway::instance {

using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

// Tokens come evenly: the remainder is distributed over gaps that are a nanosecond longer.
void record_even_gaps(workload::TokenGaps& recorded, std::size_t group, Time span,
                      std::int64_t gaps) {
  const Time gap{span.ns / gaps};
  const std::int64_t longer = span.ns % gaps;
  recorded.add(group, gap, gaps - longer);
  if (longer > 0) recorded.add(group, gap + Time{1}, longer);
}

class Sharing final : public Instance, public Engine {
 public:
  Sharing(const ProcessorSharing& config, const InstanceGroup& group, sim::InstanceId id,
          std::uint32_t engine, signals::SignalSource* reporter, const Environment& environment)
      : id_(id),
        engine_(engine),
        reporter_(reporter ? *reporter : *this),
        environment_(environment),
        requests_(environment.requests),
        states_(environment.states),
        capacity_{group.max_num_seqs, group.max_num_batched_tokens, group.num_kv_blocks,
                  group.block_size_tokens},
        progress_(Figure(config.concurrency, config.e2e_s), environment.quantum_ns),
        ttft_(config.concurrency, config.ttft_s),
        reference_output_tokens_(config.reference_output_tokens) {
    if (environment.meters_tokens) emitted_by_group_.resize(requests_.num_groups());
  }

  Time entry_delay(RequestId) const override { return {0}; }

  void enqueue(RequestId id, std::size_t, Time now) override {
    take_scrapes(now, true);
    advance(now);
    ++counters_.entered;
    states_.enqueued[id.index()] = now;
    states_.scheduled[id.index()] = now;
    states_.outcome[id.index()] = workload::Outcome::running;
    progress_.set_inside(progress_.inside() + 1);
    const std::uint64_t entry = next_entry_++;
    const std::uint32_t seat = seats_.take();
    const double done_at = progress_.value() + work_of(id);
    seats_[seat] = {.id = id, .entry = entry, .done_at = done_at};
    completions_.push({done_at, entry, seat});
    const double ttft_ns = ttft_.ns_at(progress_.inside());
    first_tokens_.push({now + round_up(ttft_ns, environment_.quantum_ns), entry, seat});
    set_alarm(now);
  }

  void cancel(RequestId id, std::size_t, workload::Outcome outcome, Time now) override {
    const std::optional<std::uint32_t> seat = seats_.find(id);
    if (!seat) return;
    take_scrapes(now, false);
    advance(now);
    const std::int32_t tokens = tokens_of(seats_[*seat], progress_.value());
    if (tokens > 0) {
      counters_.tokens_emitted += tokens - 1;
      counters_.tokens_wasted += requests_.input_tokens(id) + tokens;
    }
    ++counters_.cancelled;
    leave(id, outcome, tokens, now);
    completions_.erase_if([seat](const Due<double>& due) { return due.seat == *seat; });
    seats_.vacate(*seat);
    progress_.set_inside(progress_.inside() - 1);
    set_alarm(now);
  }

  void end_step(Time now) override {
    take_scrapes(now, false);
    advance(now);
    while (!first_tokens_.empty() && first_tokens_.first().at <= now) {
      const Due<Time> due = first_tokens_.pop();
      if (is_awaited(due)) emit_first_token(seats_[due.seat], now);
    }
    // All of this at the concurrency up to now.
    std::size_t completed = 0;
    for (; !completions_.empty() && progress_.time_to(completions_.first().at) == Time{0};
         ++completed) {
      complete(completions_.pop().seat, now);
    }
    progress_.set_inside(progress_.inside() - completed);
    set_alarm(now);
  }

  void close(Time end) override {
    for (const Seat& seat : seats_.all()) {
      const std::int32_t tokens = tokens_of(seat, progress_.at(end));
      if (tokens == 0) continue;
      states_.emitted[seat.id.index()] = tokens;
      counters_.tokens_emitted += tokens - 1;
    }
  }

  signals::InstanceSignal read(Time now) override {
    return {
        .running = occupancy().running, .free_blocks = capacity_.num_kv_blocks, .measured = now};
  }
  signals::Occupancy occupancy() const override {
    return {.running = static_cast<std::int32_t>(progress_.inside())};
  }
  signals::Capacity capacity() const override { return capacity_; }
  std::int64_t cached_blocks(RequestId, Time) override { return 0; }
  void add_emitted(std::span<std::int64_t> by_group, Time now) override {
    for (std::size_t i = 0; i < by_group.size(); ++i) by_group[i] += emitted_by_group_[i];
    for (const Seat& seat : seats_.all()) {
      const std::int32_t tokens = tokens_of(seat, progress_.at(now));
      if (tokens > 0) by_group[requests_.group(seat.id)] += tokens;
    }
  }
  void note_emitted(Time now) override {
    for (const Seat& seat : seats_.all()) {
      const std::int32_t tokens = tokens_of(seat, progress_.at(now));
      if (tokens > 0) states_.emitted[seat.id.index()] = tokens;
    }
  }
  Time next_token(Time now) override {
    Time next = sim::kForever;
    const double progress = progress_.at(now);
    for (const Seat& seat : seats_.all()) {
      const std::int32_t tokens = tokens_of(seat, progress);
      const std::int32_t later = tokens > 0 ? requests_.target_output_tokens(seat.id) - 1 : 0;
      if (tokens == 0 || tokens > later) continue;  // completions have an event
      const double share = static_cast<double>(tokens) / static_cast<double>(later);
      const double at = seat.first_token_at + share * (seat.done_at - seat.first_token_at);
      next = std::min(next, now + progress_.time_from(progress, at));
    }
    return next;
  }
  const Counters& counters() const override { return counters_; }
  Stepping stepping() const override { return Stepping::jumps; }

 private:
  // Takes the scrapes of the state before it changes. A completion precedes a scrape of the same
  // instant, an entry follows it.
  void take_scrapes(Time now, bool inclusive) {
    if (environment_.scrapes) environment_.scrapes->take(id_, reporter_, now, inclusive);
  }

  void advance(Time now) {
    progress_.advance(now);
    counters_.last_event = now;
  }

  double work_of(RequestId id) const {
    if (!reference_output_tokens_) return 1;
    return static_cast<double>(requests_.target_output_tokens(id)) /
           static_cast<double>(*reference_output_tokens_);
  }

  void set_alarm(Time now) {
    // Drops first tokens of requests that completed before they were due.
    while (!first_tokens_.empty() && !is_awaited(first_tokens_.first())) first_tokens_.pop();
    if (first_tokens_.size() > 2 * progress_.inside() + 64) {
      first_tokens_.erase_if([this](const Due<Time>& due) { return !is_awaited(due); });
    }
    Time next = sim::kForever;
    if (!first_tokens_.empty()) next = first_tokens_.first().at;
    if (!completions_.empty()) {
      next = std::min(next, now + progress_.time_to(completions_.first().at));
    }
    environment_.events.set_alarm(engine_, next);
  }

  // Output tokens of a request at `progress`; a free seat has none.
  std::int32_t tokens_of(const Seat& seat, double progress) const {
    if (seat.entry == Seat::kFree || !seat.has_first_token) return 0;
    return 1 + seat.later_tokens(requests_.target_output_tokens(seat.id) - 1, progress);
  }

  // Whether the request of a due first token is still inside without it.
  bool is_awaited(const Due<Time>& due) const {
    return seats_[due.seat].entry == due.entry && !seats_[due.seat].has_first_token;
  }

  void emit_first_token(Seat& seat, Time now) {
    seat.has_first_token = true;
    seat.first_token_at = progress_.value();
    ++counters_.tokens_emitted;
    const std::size_t row = seat.id.index();
    states_.first_token[row] = now;
    if (environment_.reports_latencies) {
      states_.reported_ttft[row] = now - requests_.arrival(seat.id);
    }
    if (environment_.notifies_first_tokens) environment_.listener.first_token(seat.id);
  }

  void complete(std::uint32_t seat, Time now) {
    if (!seats_[seat].has_first_token) emit_first_token(seats_[seat], now);
    seats_.vacate(seat);
    const RequestId id = seats_[seat].id;
    const std::size_t row = id.index();
    const std::int32_t tokens = requests_.target_output_tokens(id);
    const Time span = now - states_.first_token[row];
    if (tokens > 1 && requests_.is_counted(id)) {
      record_even_gaps(states_.token_gaps, requests_.group(id), span, tokens - 1);
    }
    counters_.tokens_emitted += tokens - 1;
    ++counters_.completed;
    if (environment_.reports_latencies) states_.reported_decode[row] = span;
    states_.finished[row] = now;
    leave(id, workload::Outcome::completed, tokens, now);
  }

  // `tokens`: its output tokens.
  void leave(RequestId id, workload::Outcome outcome, std::int32_t tokens, Time now) {
    if (!emitted_by_group_.empty()) emitted_by_group_[requests_.group(id)] += tokens;
    states_.emitted[id.index()] = tokens;
    states_.outcome[id.index()] = outcome;
    environment_.listener.finished(id);
    environment_.events.push({now, Phase::permit_release, engine_, id.value});
  }

  sim::InstanceId id_;
  std::uint32_t engine_;
  signals::SignalSource& reporter_;
  const Environment environment_;
  const workload::RequestTable& requests_;
  workload::RequestStates& states_;
  signals::Capacity capacity_;
  SharedProgress progress_;
  Figure ttft_;
  std::optional<std::int64_t> reference_output_tokens_;

  std::uint64_t next_entry_ = 0;
  Seats seats_;
  Agenda<double> completions_;
  Agenda<Time> first_tokens_;  // may include requests that have left
  Counters counters_;
  std::vector<std::int64_t>
      emitted_by_group_;  // of completed requests; empty unless tokens are metered
};

}  // namespace

void ProcessorSharing::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (concurrency.empty()) {
    out.push_back({sim::join_path(path, "concurrency"), "[]", "must not be empty"});
  }
  for (std::size_t i = 1; i < concurrency.size(); ++i) {
    if (concurrency[i] > concurrency[i - 1]) continue;
    out.push_back({sim::index_path(sim::join_path(path, "concurrency"), i),
                   sim::to_text(concurrency[i]),
                   "must be > the value before it (" + sim::to_text(concurrency[i - 1]) + ")"});
  }
  for (const auto& [name, figures] : {std::pair{"e2e_s", &e2e_s}, std::pair{"ttft_s", &ttft_s}}) {
    if (figures->size() == concurrency.size()) continue;
    out.push_back({sim::join_path(path, name), std::to_string(figures->size()) + " figures",
                   "must have one figure for each of the " + std::to_string(concurrency.size()) +
                       " values of concurrency"});
  }
}

std::unique_ptr<Instance> make(const ProcessorSharing& config, const InstanceGroup& group,
                               sim::InstanceId id, signals::SignalSource* reporter,
                               const Environment& environment, std::vector<Engine*>& engines) {
  auto plant = std::make_unique<Sharing>(
      config, group, id, static_cast<std::uint32_t>(engines.size()), reporter, environment);
  engines.push_back(plant.get());
  return plant;
}

}  // namespace spillway::instance
