// Requests that are withdrawn from an instance: the results for them and for the others, against a
// plain model that performs every step request by request; and with jumps as without.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "blis_server.h"
#include "check.h"
#include "instance/instance.h"
#include "metrics/ledger.h"
#include "sim/event_queue.h"
#include "sim/rng.h"
#include "workload/request_states.h"
#include "workload/request_table.h"

using namespace spillway;
using instance::InstanceGroup;
using sim::Draws;
using sim::Phase;
using sim::RequestId;
using sim::Stream;
using sim::Time;
using workload::Outcome;

namespace {

struct Cancel {
  std::size_t request = 0;
  Time at;
  Outcome outcome = Outcome::cancelled;
};

struct Case {
  std::shared_ptr<workload::Requests> requests = std::make_shared<workload::Requests>();
  std::vector<workload::SloClass> classes{{.name = "high", .priority = 2},
                                          {.name = "low", .priority = -1}};
  InstanceGroup group = blis_server();
  std::vector<Cancel> cancels;
  std::vector<Time> looks;  ///< when its state is read
  Time horizon = sim::kForever;
  std::int64_t quantum_ns = 1;
  bool reports = false;

  void add(std::int64_t arrival_ns, std::int32_t input, std::int32_t output,
           std::uint16_t slo_class = 0, const std::vector<workload::Segment>& shared = {}) {
    workload::Requests& all = *requests;
    if (all.tenants.empty()) {
      all.tenants = {"default"};
      all.slo_classes = {"high", "low"};
      all.segment_begin = {0};
    }
    all.arrival.push_back({arrival_ns});
    all.input_tokens.push_back(input);
    all.output_tokens.push_back(output);
    all.tenant.push_back(0);
    all.slo_class.push_back(slo_class);
    all.segments.insert(all.segments.end(), shared.begin(), shared.end());
    all.segment_begin.push_back(static_cast<std::uint32_t>(all.segments.size()));
  }
};

/// All observable values of a run.
struct Observed {
  /// A request: outcome, entry, scheduled, first token, finished, departure, tokens, preemptions,
  /// reported latencies.
  using Row = std::tuple<Outcome, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int32_t, std::int32_t, std::int64_t, std::int64_t>;
  std::vector<Row> rows;
  std::map<std::int64_t, std::int64_t> gaps;
  std::vector<std::int64_t> counts;  // of the instance, without its waiting time
  double waiting_time_s = 0;
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>> seen;

  bool operator==(const Observed&) const = default;
};

/// An instance in a minimal event loop.
class Bench final : workload::RequestListener {
 public:
  Bench(const Case& given, bool reference)
      : given_(given),
        requests_(given.requests, {}, given.classes, {0}),
        events_(static_cast<std::size_t>(given.group.data_parallel_size)) {
    states_.reports = given.reports;
    states_.resize(requests_.capacity());
    states_.token_gaps.resize(requests_.num_groups(), false);
    left_.resize(requests_.capacity(), sim::kUnset);
    finished_.resize(requests_.capacity(), 0);
    entered_rank_.resize(requests_.capacity(), 0);
    instance_ = make(given.group, sim::InstanceId{0},
                     {.requests = requests_,
                      .states = states_,
                      .events = events_,
                      .listener = *this,
                      .quantum_ns = given.quantum_ns,
                      .reports_latencies = given.reports,
                      .notifies_first_tokens = true,
                      .meters_tokens = true,
                      .reference = reference},
                     engines_);
  }

  Observed operator()() {
    for (std::uint32_t i = 0; i < requests_.capacity(); ++i) {
      const RequestId id{std::size_t{i}};
      events_.push({requests_.arrival(id) + instance_->entry_delay(id), Phase::ingress, 0, i});
    }
    for (std::uint32_t i = 0; i < given_.cancels.size(); ++i) {
      events_.push({given_.cancels[i].at, Phase::client_reaction, 0, i});
    }
    for (const Time at : given_.looks) events_.push({at, Phase::timeline_sample, 0, 0});
    sim::Event event;
    while (events_.pop(given_.horizon, event)) {
      now_ = event.time();
      handle(event);
      instance_->check_memory();
    }
    instance_->close(given_.horizon);
    return observed();
  }

  const instance::Counters& counters() const { return instance_->counters(); }

 private:
  void handle(const sim::Event& event) {
    switch (event.phase()) {
      case Phase::ingress: {
        const RequestId id{std::size_t{event.subject()}};
        const std::size_t rank = instance_->next_rank();
        instance_->sent(rank);
        entered_rank_[id.index()] = rank;
        return instance_->enqueue(id, rank, now_);
      }
      case Phase::client_reaction: {
        const Cancel& cancel = given_.cancels[event.subject()];
        return instance_->cancel(RequestId{cancel.request}, entered_rank_[cancel.request],
                                 cancel.outcome, now_);
      }
      case Phase::step_start:
        return engines_[event.subject()]->start_step(now_);
      case Phase::step_end:
        return engines_[event.subject()]->end_step(now_);
      case Phase::permit_release:
        return released(RequestId{event.subject()});
      case Phase::timeline_sample: {
        const signals::InstanceSignal seen = instance_->read(now_);
        std::vector<std::int64_t> emitted(requests_.num_groups(), 0);
        instance_->add_emitted(emitted, now_);
        seen_.emplace_back(seen.waiting, seen.running, seen.free_blocks, emitted[0]);
        return;
      }
      default:
        return;
    }
  }
  void first_token(RequestId) override {}
  void finished(RequestId id) override {
    ++finished_[id.index()];
    instance_->left(entered_rank_[id.index()]);
  }
  void released(RequestId id) override {
    check(finished_[id.index()] == 1, "the listener is notified once, before the permit");
    check(!sim::is_set(left_[id.index()]), "a permit returns once");
    left_[id.index()] = now_;
  }

  Observed observed() const {
    Observed observed;
    for (std::size_t i = 0; i < requests_.capacity(); ++i) {
      observed.rows.emplace_back(
          states_.outcome[i], states_.enqueued[i].ns, states_.scheduled[i].ns,
          states_.first_token[i].ns, states_.finished[i].ns, left_[i].ns, states_.emitted[i],
          states_.preemptions[i], given_.reports ? states_.reported_ttft[i].ns : 0,
          given_.reports ? states_.reported_decode[i].ns : 0);
    }
    workload::TokenGaps gaps = states_.token_gaps;
    gaps.close();
    workload::GapIndex::Room room;
    for (std::size_t group = 0; group < requests_.num_groups(); ++group) {
      for (const auto& [gap, count] : gaps.exact({&group, 1}, room)) observed.gaps[gap] += count;
    }
    const instance::Counters& c = instance_->counters();
    observed.counts = {c.entered,   c.refused,        c.completed,           c.cancelled,
                       c.steps,     c.preemptions,    c.waiting_after_steps, c.kv_hits,
                       c.kv_misses, c.tokens_emitted, c.kv_lookups,          c.last_event.ns};
    observed.waiting_time_s = c.waiting_time_s;
    observed.seen = seen_;
    return observed;
  }

  const Case& given_;
  workload::RequestTable requests_;
  workload::RequestStates states_;
  sim::EventQueue events_;
  std::vector<instance::Engine*> engines_;
  std::unique_ptr<instance::Instance> instance_;
  Time now_{0};
  std::vector<Time> left_;
  std::vector<int> finished_;
  std::vector<std::size_t> entered_rank_;
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>> seen_;
};

// ---- a plain model -------------------------------------------------------------------------

/// A literal transcription of the contract, without prefix caching, entry delay, reported latencies
/// and horizon.
class PlainModel {
 public:
  explicit PlainModel(const Case& given)
      : given_(given),
        group_(given.group),
        latency_(std::get<instance::Linear>(given.group.latency)),
        free_(given.group.num_kv_blocks),
        all_(given.requests->size()) {
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i].id = i;
  }

  void run() {
    const workload::Requests& requests = *given_.requests;
    std::size_t next = 0;
    while (true) {
      std::int64_t now = sim::kForever.ns;
      if (next < all_.size()) now = requests.arrival[next].ns;
      if (stepping_) now = std::min(now, step_end_);
      for (const Cancel& cancel : given_.cancels) {
        if (cancel.at.ns > now_) now = std::min(now, cancel.at.ns);
      }
      if (now == sim::kForever.ns) return;
      now_ = now;
      if (stepping_ && step_end_ == now_) end_step();
      for (const Cancel& cancel : given_.cancels) {
        if (cancel.at.ns == now_) withdraw(all_[cancel.request], cancel.outcome);
      }
      for (; next < all_.size() && requests.arrival[next].ns == now_; ++next) enter(all_[next]);
      if (!stepping_ && (!running_.empty() || !waiting_.empty())) start_step();
    }
  }

  struct Request {
    std::size_t id = 0;
    Outcome outcome = Outcome::in_transit;
    std::int64_t entered = -1, scheduled = -1, first_token = -1, finished = -1, left = -1;
    std::int64_t computed = 0, blocks = 0, tokens = 0, last_token = -1;
    std::int32_t emitted = 0, preemptions = 0;
    std::optional<Outcome> leaves;
  };
  const std::vector<Request>& all() const { return all_; }
  const std::map<std::int64_t, std::int64_t>& gaps() const { return gaps_; }
  std::int64_t steps() const { return steps_; }

  std::int64_t goal(const Request& r) const { return std::max<std::int64_t>(output(r), 1); }

 private:
  std::int64_t input(const Request& r) const { return given_.requests->input_tokens[r.id]; }
  std::int64_t output(const Request& r) const { return given_.requests->output_tokens[r.id]; }
  std::int64_t need(const Request& r) const { return input(r) + r.emitted - r.computed; }
  bool decodes(const Request& r) const { return r.emitted > 0 && need(r) == 1; }
  std::int64_t blocks_for(std::int64_t tokens) const {
    return (tokens + group_.block_size_tokens - 1) / group_.block_size_tokens;
  }
  std::int64_t share(const Request& r, std::int64_t budget) const {
    std::int64_t n = need(r);
    if (group_.long_prefill_token_threshold > 0 && !decodes(r)) {
      n = std::min(n, group_.long_prefill_token_threshold);
    }
    return std::min(n, budget);
  }

  void enter(Request& r) {
    if (blocks_for(input(r) + output(r)) > group_.num_kv_blocks) {
      r.outcome = Outcome::rejected;
      r.left = now_;
      return;
    }
    r.outcome = Outcome::running;
    r.entered = now_;
    waiting_.push_back(&r);
  }

  void leave(Request& r, Outcome outcome) {
    free_ += std::exchange(r.blocks, 0);
    r.outcome = outcome;
    r.left = now_;
  }

  void withdraw(Request& r, Outcome outcome) {
    if (r.outcome != Outcome::running || r.leaves) return;
    if (std::erase(waiting_, &r) > 0) return leave(r, outcome);
    r.leaves = outcome;
    if (!stepping_) take_out_leaving();
  }

  void take_out_leaving() {
    std::erase_if(running_, [&](Request* r) {
      if (r->leaves) leave(*r, *r->leaves);
      return r->leaves.has_value();
    });
  }

  void start_step() {
    if (!std::holds_alternative<instance::Fcfs>(group_.scheduler)) {
      std::stable_sort(waiting_.begin(), waiting_.end(), [&](const Request* a, const Request* b) {
        const auto key = [&](const Request* r) {
          const auto& classes = given_.classes;
          const bool by_length = std::holds_alternative<instance::Sjf>(group_.scheduler);
          const std::int64_t rank =
              by_length ? input(*r) : -classes[given_.requests->slo_class[r->id]].priority;
          return std::tuple(rank, given_.requests->arrival[r->id].ns, std::to_string(r->id));
        };
        return key(a) < key(b);
      });
    }
    for (Request* r : running_) r->tokens = 0;
    std::int64_t budget = group_.max_num_batched_tokens;
    bool preempted = false;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      Request& r = *running_[i];
      const std::int64_t n = share(r, budget);
      while (blocks_for(r.computed + n) - r.blocks > free_ && i < running_.size()) {
        preempted = true;
        Request& victim = *running_.back();
        running_.pop_back();
        free_ += std::exchange(victim.blocks, 0);
        victim.computed = 0;
        ++victim.preemptions;
        if (group_.preemption == instance::Preemption::restart) victim.emitted = 0;
        waiting_.insert(waiting_.begin(), &victim);
      }
      if (i == running_.size()) break;
      budget -= give(r, n);
    }
    while (!preempted && !waiting_.empty() && budget > 0 &&
           std::cmp_less(running_.size(), group_.max_num_seqs)) {
      Request& r = *waiting_.front();
      const std::int64_t n = share(r, budget);
      if (blocks_for(n) > free_) break;
      waiting_.erase(waiting_.begin());
      running_.push_back(&r);
      if (r.scheduled < 0) r.scheduled = now_;
      budget -= give(r, n);
    }
    if (running_.empty()) return;
    double prefill = 0, decode = 0, context = 0;
    bool emits = false;
    for (const Request* r : running_) {
      if (r->tokens == 0) continue;
      (decodes(*r) ? decode : prefill) += decodes(*r) ? 1 : static_cast<double>(r->tokens);
      context += static_cast<double>(r->computed);
      emits = emits || need(*r) == r->tokens;
    }
    double us = latency_.beta0_us + latency_.beta_prefill_us * prefill;
    us += latency_.beta_decode_us * decode;
    us += latency_.beta_context_us * context;
    if (emits) us += latency_.alpha_output_us;
    step_end_ = now_ + std::max<std::int64_t>(1, static_cast<std::int64_t>(us * 1000));
    stepping_ = true;
    ++steps_;
    if (group_.completion == instance::Completion::step_start) apply_step();
  }

  std::int64_t give(Request& r, std::int64_t n) {
    const std::int64_t blocks = blocks_for(r.computed + n);
    free_ -= blocks - std::exchange(r.blocks, blocks);
    return r.tokens = n;
  }

  void end_step() {
    if (group_.completion == instance::Completion::step_end) apply_step();
    stepping_ = false;
    take_out_leaving();
  }

  void apply_step() {
    for (Request* r : running_) {
      if (r->tokens == 0) continue;
      r->computed += r->tokens;
      if (need(*r) > 0) continue;
      ++r->emitted;
      if (r->first_token < 0) r->first_token = step_end_;
      if (r->emitted > 1) ++gaps_[step_end_ - r->last_token];
      r->last_token = step_end_;
    }
    std::erase_if(running_, [&](Request* r) {
      if (r->emitted < goal(*r)) return false;
      leave(*r, r->leaves.value_or(Outcome::completed));
      r->left = step_end_;
      if (!r->leaves) r->finished = step_end_;
      return true;
    });
  }

  const Case& given_;
  const InstanceGroup& group_;
  const instance::Linear& latency_;
  std::int64_t free_;
  std::vector<Request> all_;
  std::vector<Request*> waiting_, running_;
  std::map<std::int64_t, std::int64_t> gaps_;
  std::int64_t now_ = -1, step_end_ = 0, steps_ = 0;
  bool stepping_ = false;
};

// ---- random cases --------------------------------------------------------------------------

template <class T>
T one_of(Draws& draws, std::initializer_list<T> values) {
  return values.begin()[draws.below(values.size())];
}

/// Priorities, with or without aging and preemption.
instance::PriorityFcfs random_priorities(Draws& draws) {
  instance::PriorityFcfs some;
  some.age_weight_per_s = one_of(draws, {0.0, 0.0, 10.0, 300.0});
  some.victim = static_cast<instance::Victim>(draws.below(2));
  if (draws.below(3) > 0) some.preemption_margin = 1 + static_cast<std::int64_t>(draws.below(3));
  some.max_preemptions_per_step = 1 + static_cast<std::int64_t>(draws.below(3));
  return some;
}

/// `plain`: a case that the plain model supports.
Case random_case(std::uint64_t seed, bool plain) {
  Draws draws(seed, Stream::arrivals, plain);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  Case given;
  const bool whole = draws.below(2) == 0;  // whole microseconds: many events at one instant
  const std::int64_t grain = whole ? 1000 : 1;
  const std::int64_t count = between(1, 40);
  std::int64_t at = 0;
  std::int64_t tokens = 0;
  std::int64_t largest = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto input = static_cast<std::int32_t>(between(1, one_of(draws, {4, 30, 90})));
    const auto output = static_cast<std::int32_t>(between(0, one_of(draws, {3, 20, 150})));
    std::vector<workload::Segment> shared;
    if (!plain && draws.below(2) == 0) {
      shared.push_back({draws.below(3), static_cast<std::uint32_t>(between(1, input))});
    }
    given.add(at, input, output, static_cast<std::uint16_t>(draws.below(2)), shared);
    at += grain * between(0, one_of<std::int64_t>(draws, {0, 200, 3000}) * 1000 / grain);
    tokens += input + output;
    largest = std::max<std::int64_t>(largest, input + output);
  }
  InstanceGroup& group = given.group;
  group.block_size_tokens = one_of<std::int64_t>(draws, {1, 3, 16});
  const std::int64_t room = one_of(draws, {largest, largest + tokens / 8, tokens + 40});
  group.num_kv_blocks = room / group.block_size_tokens + between(0, 3);
  group.max_num_seqs = one_of<std::int64_t>(draws, {1, 4, 12, 256});
  group.max_num_batched_tokens = one_of<std::int64_t>(draws, {1, 8, 40, 2048});
  group.long_prefill_token_threshold = one_of<std::int64_t>(draws, {0, 0, 5});
  group.completion = static_cast<instance::Completion>(draws.below(2));
  group.preemption = static_cast<instance::Preemption>(draws.below(2));
  group.scheduler = one_of<instance::Scheduler>(
      draws, {instance::Fcfs{}, instance::Sjf{}, instance::PriorityFcfs{}});
  group.latency = instance::Linear{.alpha0_us = 0,
                                   .alpha_input_us = 0,
                                   .alpha_output_us = one_of(draws, {0.0, 7.0}),
                                   .beta0_us = one_of(draws, {0.0, 100.0, 6910.4}),
                                   .beta_prefill_us = one_of(draws, {0.0, 10.0}),
                                   .beta_decode_us = one_of(draws, {0.0, 1.0, 2.8}),
                                   .beta_context_us = one_of(draws, {0.0, 0.0, 0.25})};
  group.kv_cache.prefix_caching = !plain;
  if (!plain) {
    group.kv_cache.allocation = static_cast<instance::Allocation>(draws.below(3) / 2);
    group.kv_cache.stores_last_token = draws.below(2) == 0;
    given.reports = draws.below(3) == 0;
    if (given.reports)
      group.output_overhead = static_cast<instance::OutputOverhead>(draws.below(2));
    given.quantum_ns = one_of<std::int64_t>(draws, {1, 1000});
    if (draws.below(2) == 0) group.scheduler = random_priorities(draws);
    if (draws.below(4) == 0) {
      group.data_parallel_size = 2;
      group.lockstep_ranks = draws.below(2) == 0;
    }
  }
  // Instants at which other events may happen if steps are whole microseconds.
  const std::int64_t span = at + grain * between(0, 200'000'000 / grain);
  const auto some_time = [&] { return Time{grain * between(0, span / grain)}; };
  for (std::int64_t i = between(0, 2 * count); i > 0; --i) {
    const Outcome outcome = draws.below(3) == 0 ? Outcome::evicted : Outcome::cancelled;
    const auto which = static_cast<std::size_t>(between(0, count - 1));
    Time when = some_time();
    if (draws.below(2) == 0) {
      when = given.requests->arrival[which] + Time{grain * between(1, 20'000'000 / grain)};
    }
    given.cancels.push_back({which, when, outcome});
  }
  if (!plain) {
    for (std::int64_t i = between(0, 20); i > 0; --i) given.looks.push_back(some_time());
    if (draws.below(3) == 0) given.horizon = some_time();
  }
  return given;
}

void a_plain_model_agrees() {
  std::int64_t in_batch = 0, waiting = 0, evicted = 0, in_vain = 0, preempted = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Case given = random_case(seed, true);
    PlainModel model(given);
    model.run();
    for (const bool reference : {false, true}) {
      const Observed observed = Bench(given, reference)();
      const std::string where = "seed " + std::to_string(seed);
      for (std::size_t i = 0; i < observed.rows.size(); ++i) {
        const PlainModel::Request& r = model.all()[i];
        const Observed::Row expected{r.outcome,  r.entered, r.scheduled, r.first_token,
                                     r.finished, r.left,    r.emitted,   r.preemptions,
                                     0,          0};
        check(observed.rows[i] == expected, where + ", request " + std::to_string(i));
      }
      check(observed.gaps == model.gaps(), where + ", gaps");
      check(observed.counts[4] == model.steps(), where + ", steps");
    }
    for (const PlainModel::Request& r : model.all()) {
      const bool is_gone = r.outcome == Outcome::cancelled || r.outcome == Outcome::evicted;
      in_batch += is_gone && r.leaves;
      waiting += is_gone && !r.leaves;
      evicted += r.outcome == Outcome::evicted;
      preempted += is_gone && r.preemptions > 0;
      in_vain += is_gone && r.emitted == model.goal(r);
    }
  }
  check(in_batch > 1000 && waiting > 1000 && evicted > 300, "requests leave from everywhere");
  check(preempted > 100 && in_vain > 30, "preempted ones do, and some with their last token");
}

void jumps_equal_single_steps() {
  std::int64_t hits = 0, cancelled = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Case given = random_case(seed, false);
    const Observed jumping = Bench(given, false)();
    check(jumping == Bench(given, true)(), "seed " + std::to_string(seed));
    const std::int64_t running = std::count_if(
        jumping.rows.begin(), jumping.rows.end(),
        [](const Observed::Row& row) { return std::get<0>(row) == Outcome::running; });
    const auto& counts = jumping.counts;
    check(counts[2] + counts[3] + running == counts[0],
          "completed + cancelled + running = entered, seed " + std::to_string(seed));
    cancelled += counts[3];
    hits += counts[7];
  }
  check(cancelled > 2000 && hits > 1000, "requests left, and prefixes were found");
}

// ---- the other plant -----------------------------------------------------------------------

// Two requests that take 10 s each together and 6 s alone: when one leaves after 2 s, the other has
// done 2 of 10 parts of its work.
void the_others_share_what_a_processor_gives() {
  Case given;
  given.add(0, 10, 11);
  given.add(0, 10, 11);
  given.group.plant =
      instance::ProcessorSharing{.concurrency = {1, 2}, .e2e_s = {6, 10}, .ttft_s = {0.5, 1}};
  given.cancels = {{0, sim::from_seconds(2)}};
  const Observed observed = Bench(given, false)();
  const std::int64_t s = 1'000'000'000;
  const Observed::Row gone{Outcome::cancelled, 0, 0, s / 2, -1, 2 * s, 2, 0, 0, 0};
  const Observed::Row other{Outcome::completed,  0,  0, s, 2 * s + 48 * s / 10,
                            2 * s + 48 * s / 10, 11, 0, 0, 0};
  check(observed.rows[0] == gone && observed.rows[1] == other, "one leaves, the other is faster");
  check(observed.counts[3] == 1 && observed.counts[9] == 13, "the tokens of both are counted");
}

// ---- the counters --------------------------------------------------------------------------

void the_ledger_tells_where_requests_were_withdrawn() {
  struct Row {
    Outcome outcome;
    bool dispatched;
    bool entered;
  };
  const std::vector<Row> rows{
      {Outcome::evicted, false, false},   {Outcome::evicted, true, true},
      {Outcome::evicted, true, true},     {Outcome::cancelled, true, true},
      {Outcome::cancelled, true, false},  {Outcome::cancelled, true, false},
      {Outcome::completed, true, true},   {Outcome::running, true, true},
      {Outcome::in_transit, true, false},
  };
  workload::RequestStates states;
  states.resize(rows.size());
  metrics::OutcomeCounts counts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    states.admitted[i] = {0};
    if (rows[i].dispatched) states.dispatched[i] = {0};
    if (rows[i].entered) states.enqueued[i] = {0};
    states.outcome[i] = rows[i].outcome;
    counts.add(states, RequestId{i}, true);
  }
  const gateway::GatewayCounters counters{
      .attempts = 9, .admitted = 9, .evicted = 1, .reclaimed = 2, .dispatched = 8};
  const metrics::FleetCounts fleet{.entered = 5, .completed = 1, .cancelled = 3};
  const metrics::Ledger ledger = metrics::balance(counts, counters, 0, fleet);
  check(ledger.evicted == 3 && ledger.evicted_in_flight == 2, "two of three left an instance");
  check(ledger.cancelled == 3 && ledger.cancelled_in_flight == 3, "all were in flight");
  for (const std::int64_t wrong : {2, 4}) {
    check_throws<sim::InvariantError>(
        [&] {
          metrics::balance(counts, counters, 0, {.entered = 5, .completed = 1, .cancelled = wrong});
        },
        "an instance that counted otherwise");
  }
}

}  // namespace

CASES(a_plain_model_agrees, jumps_equal_single_steps, the_others_share_what_a_processor_gives,
      the_ledger_tells_where_requests_were_withdrawn);
