#include "instance/plant/processor_sharing.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "instance/instance.h"
#include "sim/value.h"

namespace spillway::instance {

using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

/// Less is what double arithmetic leaves over, and no time.
constexpr double kNoTime_ns = 1e-3;

/// A figure by concurrency: linear between the points of a table, constant beyond them.
class Figure {
 public:
  Figure(const std::vector<double>& concurrency, const std::vector<double>& seconds)
      : x_(concurrency), y_(seconds) {
    for (double& y : y_) y *= 1e9;
  }
  double ns_at(std::size_t requests) const {
    const auto n = static_cast<double>(requests);
    const auto above = std::upper_bound(x_.begin(), x_.end(), n);
    if (above == x_.begin()) return y_.front();
    if (above == x_.end()) return y_.back();
    const auto i = static_cast<std::size_t>(above - x_.begin());
    return y_[i - 1] + (n - x_[i - 1]) / (x_[i] - x_[i - 1]) * (y_[i] - y_[i - 1]);
  }

 private:
  std::vector<double> x_;
  std::vector<double> y_;
};

/// Something that is due to a request when a clock has reached `at`.
template <class Clock>
struct Due {
  Clock at{};
  std::uint64_t entry = 0;  ///< orders requests by when they entered
  std::uint32_t seat = 0;

  friend auto operator<=>(const Due&, const Due&) = default;
};

/// What is due, earliest first.
template <class Clock>
class Agenda {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  const Due<Clock>& first() const { return heap_.front(); }
  void push(const Due<Clock>& due) {
    heap_.push_back(due);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
  }
  Due<Clock> pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
    const Due<Clock> due = heap_.back();
    heap_.pop_back();
    return due;
  }
  template <class Predicate>
  void erase_if(const Predicate& predicate) {
    std::erase_if(heap_, predicate);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>{});
  }

 private:
  std::vector<Due<Clock>> heap_;
};

/// Progress is a clock of its own: it advances by dt/E(n), so a request is done when it shows what
/// it showed at the request's entry, plus the request's work.
class Sharing final : public Instance, public Engine {
 public:
  Sharing(const ProcessorSharing& config, const InstanceGroup& group, sim::InstanceId id,
          std::uint32_t engine, signals::Probe* reporter, const Environment& environment)
      : id_(id),
        engine_(engine),
        reporter_(reporter ? *reporter : *this),
        requests_(environment.requests),
        journal_(environment.journal),
        events_(environment.events),
        listener_(environment.listener),
        tells_first_tokens_(environment.tells_first_tokens),
        reports_latencies_(environment.reports_latencies),
        scrapes_(environment.scrapes),
        quantum_ns_(environment.quantum_ns),
        capacity_{group.max_num_seqs, group.max_num_batched_tokens, group.num_kv_blocks,
                  group.block_size_tokens},
        e2e_(config.concurrency, config.e2e_s),
        ttft_(config.concurrency, config.ttft_s),
        reference_output_tokens_(config.reference_output_tokens) {
    if (environment.meters_tokens) emitted_by_group_.resize(requests_.num_groups());
  }

  Time entry_delay(RequestId) const override { return {0}; }

  void enqueue(RequestId id, std::size_t, Time now) override {
    take_scrapes(now, true);
    advance(now);
    ++counters_.entered;
    journal_.enqueued[id.index()] = now;
    journal_.scheduled[id.index()] = now;
    journal_.outcome[id.index()] = workload::Outcome::running;
    ++inside_;
    e2e_ns_ = e2e_.ns_at(inside_);
    const std::uint64_t entry = next_entry_++;
    const std::uint32_t seat = take_seat();
    seats_[seat] = {.id = id, .entry = entry, .done_at = progress_ + work_of(id)};
    completions_.push({seats_[seat].done_at, entry, seat});
    first_tokens_.push({now + in_quanta(ttft_.ns_at(inside_)), entry, seat});
    set_alarm(now);
  }

  void cancel(RequestId id, std::size_t, workload::Outcome outcome, Time now) override {
    const auto seat = std::find_if(seats_.begin(), seats_.end(), [id](const Seat& one) {
      return one.entry != kNobody && one.id == id;
    });
    if (seat == seats_.end()) return;
    take_scrapes(now, false);
    advance(now);
    withdraw(*seat, outcome, now);
    const auto index = static_cast<std::uint32_t>(seat - seats_.begin());
    completions_.erase_if([index](const Due<double>& due) { return due.seat == index; });
    vacate(index);
    --inside_;
    e2e_ns_ = e2e_.ns_at(inside_);
    if (inside_ == 0) progress_ = 0;
    set_alarm(now);
  }

  void start_step(Time) override {}  // nobody asks for one

  void end_step(Time now) override {
    take_scrapes(now, false);
    advance(now);
    while (!first_tokens_.empty() && first_tokens_.first().at <= now) {
      const Due<Time> due = first_tokens_.pop();
      if (is_awaited(due)) emit_first_token(seats_[due.seat], now);
    }
    // All at the concurrency up to now.
    while (!completions_.empty() && time_to(completions_.first().at) == Time{0}) {
      complete(completions_.pop().seat, now);
      --inside_;
    }
    e2e_ns_ = e2e_.ns_at(inside_);
    if (inside_ == 0) progress_ = 0;  // small numbers are exact ones
    set_alarm(now);
  }

  void close(Time end) override {
    if (inside_ > 0) progress_ += progress_between(updated_, end);
    for (const Seat& seat : seats_) {
      if (seat.entry == kNobody || !seat.has_first_token) continue;
      const std::int32_t emitted = later_tokens_of(seat, progress_);
      journal_.emitted[seat.id.index()] = 1 + emitted;
      counters_.tokens_emitted += emitted;
    }
  }

  signals::InstanceSignal read(Time now) override {
    return {
        .running = occupancy().running, .free_blocks = capacity_.num_kv_blocks, .measured = now};
  }
  signals::Occupancy occupancy() const override {
    return {.running = static_cast<std::int32_t>(inside_)};
  }
  signals::Capacity capacity() const override { return capacity_; }
  std::int64_t cached_blocks(RequestId, Time) override { return 0; }
  void add_emitted(std::span<std::int64_t> by_group, Time now) override {
    for (std::size_t i = 0; i < by_group.size(); ++i) by_group[i] += emitted_by_group_[i];
    if (inside_ == 0) return;
    const double progress = progress_ + progress_between(updated_, now);
    for (const Seat& seat : seats_) {
      if (seat.entry == kNobody || !seat.has_first_token) continue;
      by_group[requests_.group(seat.id)] += 1 + later_tokens_of(seat, progress);
    }
  }
  const Counters& counters() const override { return counters_; }
  Stepping stepping() const override { return Stepping::jumps; }
  void check_memory() const override {}  // it has none

 private:
  static constexpr std::uint64_t kNobody = std::numeric_limits<std::uint64_t>::max();

  /// A request inside. `…_at` is progress.
  struct Seat {
    RequestId id;
    std::uint64_t entry = kNobody;
    double done_at = 0;
    double first_token_at = 0;
    bool has_first_token = false;
  };

  // What is scraped of the state that is about to change. A completion precedes a scrape of the
  // same instant, an entry follows it.
  void take_scrapes(Time now, bool inclusive) {
    if (scrapes_) scrapes_->take(id_, reporter_, now, inclusive);
  }

  // ---- progress ----------------------------------------------------------------------------

  double work_of(RequestId id) const {
    if (!reference_output_tokens_) return 1;
    return static_cast<double>(requests_.goal_tokens(id)) /
           static_cast<double>(*reference_output_tokens_);
  }
  double progress_between(Time from, Time to) const {
    return static_cast<double>((to - from).ns) / e2e_ns_;
  }
  void advance(Time now) {
    if (inside_ > 0) progress_ += progress_between(updated_, now);
    updated_ = now;
    counters_.last_event = now;
  }
  // Rounded up. Spans too long for the clock saturate.
  Time in_quanta(double ns) const {
    const double quanta = std::ceil((ns - kNoTime_ns) / static_cast<double>(quantum_ns_));
    if (quanta <= 0) return {0};
    if (!(ns < sim::kLongestSpan_s * 1e9)) return sim::from_seconds(sim::kLongestSpan_s);
    return {static_cast<std::int64_t>(quanta) * quantum_ns_};
  }
  // Until progress has come to `target`, if nobody enters or leaves before.
  Time time_to(double target) const { return in_quanta((target - progress_) * e2e_ns_); }

  void set_alarm(Time now) {
    // Of requests that were done before their first token was due.
    while (!first_tokens_.empty() && !is_awaited(first_tokens_.first())) first_tokens_.pop();
    if (first_tokens_.size() > 2 * inside_ + 64) {
      first_tokens_.erase_if([this](const Due<Time>& due) { return !is_awaited(due); });
    }
    Time next = sim::kForever;
    if (!first_tokens_.empty()) next = first_tokens_.first().at;
    if (!completions_.empty()) next = std::min(next, now + time_to(completions_.first().at));
    events_.set_alarm(engine_, next);
  }

  // ---- requests ----------------------------------------------------------------------------

  // Tokens that have followed the first, evenly over the progress since.
  std::int32_t later_tokens_of(const Seat& seat, double progress) const {
    const auto all = static_cast<double>(requests_.goal_tokens(seat.id) - 1);
    const double share = (progress - seat.first_token_at) / (seat.done_at - seat.first_token_at);
    return static_cast<std::int32_t>(all * std::min(share, 1.0));
  }

  std::uint32_t take_seat() {
    if (free_seats_.empty()) {
      seats_.emplace_back();
      return static_cast<std::uint32_t>(seats_.size() - 1);
    }
    const std::uint32_t seat = free_seats_.back();
    free_seats_.pop_back();
    return seat;
  }
  // Whether the request whose first token is due is still there without it.
  bool is_awaited(const Due<Time>& due) const {
    return seats_[due.seat].entry == due.entry && !seats_[due.seat].has_first_token;
  }

  void emit_first_token(Seat& seat, Time now) {
    seat.has_first_token = true;
    seat.first_token_at = progress_;
    ++counters_.tokens_emitted;
    const std::size_t row = seat.id.index();
    journal_.first_token[row] = now;
    if (reports_latencies_) journal_.reported_ttft[row] = now - requests_.arrival(seat.id);
    if (tells_first_tokens_) listener_.first_token(seat.id);
  }

  void vacate(std::uint32_t seat) {
    seats_[seat].entry = kNobody;
    free_seats_.push_back(seat);
  }

  void withdraw(const Seat& seat, workload::Outcome outcome, Time now) {
    const std::size_t row = seat.id.index();
    if (seat.has_first_token) {
      const std::int32_t later_tokens = later_tokens_of(seat, progress_);
      journal_.emitted[row] = 1 + later_tokens;
      counters_.tokens_emitted += later_tokens;
      if (!emitted_by_group_.empty()) {
        emitted_by_group_[requests_.group(seat.id)] += 1 + later_tokens;
      }
    }
    ++counters_.cancelled;
    journal_.outcome[row] = outcome;
    listener_.finished(seat.id);
    events_.push({now, Phase::permit_release, engine_, seat.id.value});
  }

  void complete(std::uint32_t seat, Time now) {
    if (!seats_[seat].has_first_token) emit_first_token(seats_[seat], now);
    vacate(seat);
    const RequestId id = seats_[seat].id;
    const std::size_t row = id.index();
    const std::int32_t later_tokens = requests_.goal_tokens(id) - 1;
    const Time span = now - journal_.first_token[row];
    record_gaps(id, span, later_tokens);
    counters_.tokens_emitted += later_tokens;
    if (!emitted_by_group_.empty()) {
      emitted_by_group_[requests_.group(id)] += requests_.goal_tokens(id);
    }
    ++counters_.completed;
    if (reports_latencies_) journal_.reported_decode[row] = span;
    journal_.emitted[row] = requests_.goal_tokens(id);
    journal_.finished[row] = now;
    journal_.outcome[row] = workload::Outcome::completed;
    listener_.finished(id);
    events_.push({now, Phase::permit_release, engine_, id.value});
  }

  // Tokens come evenly: as many gaps as the span's remainder are a nanosecond longer.
  void record_gaps(RequestId id, Time span, std::int64_t gaps) {
    if (gaps == 0 || !requests_.is_counted(id)) return;
    const Time gap{span.ns / gaps};
    const std::int64_t longer = span.ns % gaps;
    workload::TokenGaps& recorded = journal_.token_gaps;
    recorded.add(requests_.group(id), gap, gaps - longer);
    if (longer > 0) recorded.add(requests_.group(id), gap + Time{1}, longer);
  }

  sim::InstanceId id_;
  std::uint32_t engine_;
  signals::Probe& reporter_;
  const workload::RequestTable& requests_;
  workload::Journal& journal_;
  sim::EventQueue& events_;
  workload::RequestListener& listener_;
  bool tells_first_tokens_;
  bool reports_latencies_;
  signals::Scrapes* scrapes_;
  std::int64_t quantum_ns_;
  signals::Capacity capacity_;
  Figure e2e_;
  Figure ttft_;
  std::optional<std::int64_t> reference_output_tokens_;

  std::size_t inside_ = 0;
  double e2e_ns_ = 1;  // at this concurrency
  double progress_ = 0;
  Time updated_{0};  // when progress was `progress_`
  std::uint64_t next_entry_ = 0;
  std::vector<Seat> seats_;
  std::vector<std::uint32_t> free_seats_;
  Agenda<double> completions_;
  Agenda<Time> first_tokens_;  // also of requests that are gone
  Counters counters_;
  std::vector<std::int64_t> emitted_by_group_;  // of those done; empty unless it is asked for
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
                   "must be > the one before it (" + sim::to_text(concurrency[i - 1]) + ")"});
  }
  for (const auto& [name, figures] : {std::pair{"e2e_s", &e2e_s}, std::pair{"ttft_s", &ttft_s}}) {
    if (figures->size() == concurrency.size()) continue;
    out.push_back({sim::join_path(path, name), std::to_string(figures->size()) + " figures",
                   "must be one for each of the " + std::to_string(concurrency.size()) +
                       " values of concurrency"});
  }
}

std::unique_ptr<Instance> make(const ProcessorSharing& config, const InstanceGroup& group,
                               sim::InstanceId id, signals::Probe* reporter,
                               const Environment& environment, std::vector<Engine*>& engines) {
  auto plant = std::make_unique<Sharing>(
      config, group, id, static_cast<std::uint32_t>(engines.size()), reporter, environment);
  engines.push_back(plant.get());
  return plant;
}

}  // namespace spillway::instance
