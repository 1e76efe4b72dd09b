#include "instance/instance.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "instance/kv_cache/block_pool.h"

namespace spillway::instance {

using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

/// Choices within the step loop, fixed when it is compiled.
struct StepRules {
  Completion completion;
  Preemption preemption;
  bool reports;
};

/// A request in the batch.
struct Slot {
  RequestId id;
  std::int64_t computed = 0;   ///< tokens whose KV is in the cache
  std::int64_t blocks = 0;     ///< KV blocks held
  std::int64_t scheduled = 0;  ///< tokens in the current step
};

/// A request in the queue.
struct Waiting {
  RequestId id;
  std::int64_t rank = 0;
};

template <StepRules rules>
class StepLoop final : public Instance {
 public:
  StepLoop(const InstanceGroup& group, sim::InstanceId id, const Environment& environment)
      : id_(id),
        requests_(environment.requests),
        journal_(environment.journal),
        events_(environment.events),
        listener_(environment.listener),
        quantum_ns_(environment.quantum_ns),
        max_num_seqs_(static_cast<std::size_t>(group.max_num_seqs)),
        max_num_batched_tokens_(group.max_num_batched_tokens),
        prefill_cap_(group.long_prefill_token_threshold > 0
                         ? group.long_prefill_token_threshold
                         : std::numeric_limits<std::int64_t>::max()),
        max_model_len_(group.max_model_len > 0 ? group.max_model_len
                                               : std::numeric_limits<std::int64_t>::max()),
        scheduler_(std::visit([](const auto& c) { return make(c); }, group.scheduler)),
        latency_(std::visit([](const auto& c) { return make(c); }, group.latency)),
        pool_(group.num_kv_blocks, group.block_size_tokens),
        gaps_(requests_.groups.size()) {
    const bool in_step = group.output_overhead == OutputOverhead::in_step;
    step_overhead_us_ = in_step ? latency_->output_us() : 0;
    reported_overhead_ = in_step ? Time{0} : sim::truncate_us(latency_->output_us(), quantum_ns_);
  }

  Time entry_delay(RequestId id) const override {
    return sim::truncate_us(latency_->entry_us(requests_.input_tokens(id)), quantum_ns_);
  }

  void enqueue(RequestId id, Time now) override {
    advance_clock(now);
    const std::size_t row = id.index();
    const std::int64_t input = requests_.input_tokens(id);
    const std::int64_t whole = input + requests_.output_tokens(id);
    if (pool_.blocks_for(whole) > pool_.total() || input >= max_model_len_ ||
        whole > max_model_len_) {
      ++counters_.refused;
      journal_.outcome[row] = workload::Outcome::rejected;
      journal_.reason[row] = {workload::Stage::ingress, 0};
      listener_.finished(id);
      events_.push({now, Phase::permit_release, id_.value, id.value});
      return;
    }
    ++counters_.entered;
    journal_.enqueued[row] = now;
    journal_.outcome[row] = workload::Outcome::running;
    waiting_.push_back({id, scheduler_->rank(id, requests_)});
    unsorted_ = true;
    request_step(now);
  }

  void start_step(Time now) override {
    advance_clock(now);
    step_requested_ = false;
    sort_waiting();
    for (Slot& slot : running_) slot.scheduled = 0;
    StepLoad load;
    bool emits = false;
    std::int64_t budget = max_num_batched_tokens_;
    const bool preempted = !schedule_running(budget);
    if (!preempted) schedule_waiting(budget, now);
    for (const Slot& slot : running_) {
      if (slot.scheduled == 0) continue;
      if (decodes(slot)) {
        ++load.decode_requests;
      } else {
        load.prefill_tokens += slot.scheduled;
      }
      load.context_tokens += slot.computed;
      emits = emits || slot.computed + slot.scheduled == known(slot);
    }
    if (running_.empty()) return;

    double step_us = latency_->step_us(load);
    if (emits) step_us += step_overhead_us_;
    const Time duration = std::max(Time{quantum_ns_}, sim::truncate_us(step_us, quantum_ns_));
    ++counters_.steps;
    counters_.waiting_after_steps += static_cast<std::int64_t>(waiting_.size());
    step_started_ = now;
    step_ends_ = now + duration;
    stepping_ = true;
    events_.push({step_ends_, Phase::step_end, id_.value, id_.value});
    if constexpr (rules.completion == Completion::step_start) take_effect();
  }

  void end_step(Time now) override {
    advance_clock(now);
    stepping_ = false;
    if constexpr (rules.completion == Completion::step_end) take_effect();
    if (!running_.empty() || !waiting_.empty()) request_step(now);
  }

  signals::InstanceSignal read(Time now) const override {
    return {static_cast<std::int32_t>(waiting_.size()), static_cast<std::int32_t>(running_.size()),
            pool_.utilization(), pool_.free(), now};
  }
  const Counters& counters() const override { return counters_; }
  const std::vector<numerics::WeightedSample>& token_gaps() const override { return gaps_; }

  void check_memory() const override {
    std::int64_t held = 0;
    for (const Slot& slot : running_) held += slot.blocks;
    sim::require(held + pool_.free() == pool_.total() && pool_.free() >= 0,
                 "instance " + std::to_string(id_.value) + " holds " + std::to_string(held) +
                     " KV blocks and has " + std::to_string(pool_.free()) + " free of " +
                     std::to_string(pool_.total()));
  }

 private:
  std::int64_t known(const Slot& slot) const {
    return requests_.input_tokens(slot.id) + journal_.emitted[slot.id.index()];
  }
  bool decodes(const Slot& slot) const {
    return journal_.emitted[slot.id.index()] > 0 && known(slot) - slot.computed == 1;
  }
  std::int64_t goal(const Slot& slot) const {
    return std::max(requests_.output_tokens(slot.id), 1);
  }

  void advance_clock(Time now) {
    counters_.waiting_time_s +=
        static_cast<double>(waiting_.size()) * sim::to_seconds(now - counters_.last_event);
    counters_.last_event = now;
  }

  void request_step(Time now) {
    if (stepping_ || step_requested_) return;
    step_requested_ = true;
    events_.push({now, Phase::step_start, id_.value, id_.value});
  }

  void sort_waiting() {
    if (!scheduler_->sorts() || !unsorted_) return;
    unsorted_ = false;
    const std::vector<std::uint32_t>& name_ranks = requests_.source->name_ranks();
    std::stable_sort(waiting_.begin(), waiting_.end(), [&](const Waiting& a, const Waiting& b) {
      if (a.rank != b.rank) return a.rank < b.rank;
      const Time at_a = requests_.arrival(a.id);
      const Time at_b = requests_.arrival(b.id);
      if (at_a != at_b) return at_a < at_b;
      return name_ranks[a.id.index()] < name_ranks[b.id.index()];
    });
  }

  std::int64_t share_of(const Slot& slot, std::int64_t budget) const {
    const std::int64_t need = known(slot) - slot.computed;
    return std::min({need, decodes(slot) ? need : prefill_cap_, budget});
  }

  // Gives tokens to running requests in order, preempting from the tail where memory runs out.
  // False if it preempted.
  bool schedule_running(std::int64_t& budget) {
    bool preempted = false;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      const std::int64_t tokens = share_of(running_[i], budget);
      while (!pool_.extend(running_[i].blocks, running_[i].computed + tokens)) {
        preempted = true;
        preempt_last();
        if (i == running_.size()) return false;
      }
      running_[i].scheduled = tokens;
      budget -= tokens;
    }
    return !preempted;
  }

  void preempt_last() {
    Slot& victim = running_.back();
    const std::size_t row = victim.id.index();
    pool_.release(victim.blocks);
    ++counters_.preemptions;
    ++journal_.preemptions[row];
    if constexpr (rules.preemption == Preemption::restart) {
      journal_.emitted[row] = 0;
    }
    waiting_.push_front({victim.id, scheduler_->rank(victim.id, requests_)});
    unsorted_ = true;
    running_.pop_back();
  }

  // Takes requests from the head of the queue while seats, budget and memory last; a head that does
  // not fit blocks.
  void schedule_waiting(std::int64_t& budget, Time now) {
    while (!waiting_.empty() && running_.size() < max_num_seqs_ && budget > 0) {
      Slot slot{.id = waiting_.front().id};
      slot.scheduled = share_of(slot, budget);
      if (!pool_.extend(slot.blocks, slot.scheduled)) return;
      waiting_.pop_front();
      budget -= slot.scheduled;
      Time& scheduled = journal_.scheduled[slot.id.index()];
      if (rules.reports || !sim::is_set(scheduled)) scheduled = now;
      running_.push_back(slot);
    }
  }

  // The step's tokens exist: emissions, completions, released memory.
  void take_effect() {
    for (Slot& slot : running_) advance(slot);
    const auto done = [&](const Slot& slot) {
      return journal_.emitted[slot.id.index()] == goal(slot);
    };
    for (Slot& slot : running_) {
      if (done(slot)) complete(slot);
    }
    std::erase_if(running_, done);
  }

  void advance(Slot& slot) {
    const std::size_t row = slot.id.index();
    std::int32_t& emitted = journal_.emitted[row];
    const std::int64_t before = known(slot);
    slot.computed += slot.scheduled;
    if (slot.scheduled > 0 && slot.computed == before) {
      ++emitted;
      ++counters_.tokens_emitted;
      record_token(row, emitted);
    }
    if constexpr (rules.reports) {
      if (emitted == 1) {
        journal_.reported_ttft[row] = step_ends_ + reported_overhead_ - requests_.arrival(slot.id);
      }
    }
  }

  void record_token(std::size_t row, std::int32_t emitted) {
    if (!sim::is_set(journal_.first_token[row])) journal_.first_token[row] = step_ends_;
    if (emitted > 1) {
      Time gap = step_ends_ - journal_.last_token[row];
      if constexpr (rules.reports) {
        gap = step_ends_ - step_started_ + reported_overhead_;
        journal_.reported_decode[row] += gap;
      }
      const std::uint16_t group = requests_.group[row];
      if (group != workload::RequestTable::kNoGroup) gaps_[group].add(gap.ns, 1);
    }
    journal_.last_token[row] = step_ends_;
  }

  void complete(Slot& slot) {
    const std::size_t row = slot.id.index();
    pool_.release(slot.blocks);
    ++counters_.completed;
    journal_.finished[row] = step_ends_;
    journal_.outcome[row] = workload::Outcome::completed;
    listener_.finished(slot.id);
    events_.push({step_ends_, Phase::permit_release, id_.value, slot.id.value});
  }

  sim::InstanceId id_;
  const workload::RequestTable& requests_;
  workload::Journal& journal_;
  sim::EventQueue& events_;
  workload::FinishListener& listener_;
  std::int64_t quantum_ns_;
  std::size_t max_num_seqs_;
  std::int64_t max_num_batched_tokens_;
  std::int64_t prefill_cap_;
  std::int64_t max_model_len_;
  std::unique_ptr<SchedulerPolicy> scheduler_;
  std::unique_ptr<LatencyModel> latency_;
  double step_overhead_us_ = 0;
  Time reported_overhead_{0};

  BlockPool pool_;
  std::deque<Waiting> waiting_;
  bool unsorted_ = false;
  std::vector<Slot> running_;
  bool stepping_ = false;
  bool step_requested_ = false;
  Time step_started_{0};
  Time step_ends_{0};

  Counters counters_;
  std::vector<numerics::WeightedSample> gaps_;  // per group of requests
};

template <Completion completion, Preemption preemption>
std::unique_ptr<Instance> make_reporting(const InstanceGroup& group, sim::InstanceId id,
                                         const Environment& environment) {
  if (environment.reports_latencies) {
    return std::make_unique<StepLoop<StepRules{completion, preemption, true}>>(group, id,
                                                                               environment);
  }
  return std::make_unique<StepLoop<StepRules{completion, preemption, false}>>(group, id,
                                                                              environment);
}

template <Completion completion>
std::unique_ptr<Instance> make_completing(const InstanceGroup& group, sim::InstanceId id,
                                          const Environment& environment) {
  return group.preemption == Preemption::restart
             ? make_reporting<completion, Preemption::restart>(group, id, environment)
             : make_reporting<completion, Preemption::keep_emitted>(group, id, environment);
}

}  // namespace

std::unique_ptr<Instance> make(const InstanceGroup& group, sim::InstanceId id,
                               const Environment& environment) {
  return group.completion == Completion::step_start
             ? make_completing<Completion::step_start>(group, id, environment)
             : make_completing<Completion::step_end>(group, id, environment);
}

}  // namespace spillway::instance
