#include "instance/instance.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "instance/decoders.h"
#include "instance/kv_cache/kv_cache.h"
#include "instance/latency/latency.h"
#include "instance/plant/step_loop.h"
#include "instance/scheduler/scheduler.h"
#include "instance/waiting_queue.h"

namespace spillway::instance {

using sim::Phase;
using sim::RequestId;
using sim::Time;

namespace {

/// A jump whose steps differ in duration is evaluated step by step; it ends after so many, so that
/// little of that is wasted if an arrival cuts it short.
constexpr std::int64_t kLongestUnevenJump = 256;

/// No run lasts longer.
constexpr Time kEndOfTime = sim::from_seconds(sim::kLongestSpan_s);

/// Choices within the step loop, fixed when it is compiled.
struct StepRules {
  Completion completion = Completion::step_end;
  Preemption preemption = Preemption::keep_emitted;
  bool reports = false;
};

/// A request of the batch that is looked at in every step.
struct Slot {
  RequestId id;
  std::uint32_t entry = 0;    ///< orders requests by when they entered the batch
  std::int32_t emitted = 0;   ///< output tokens so far
  std::int64_t computed = 0;  ///< tokens whose KV is in the cache
  std::int64_t tokens = 0;    ///< tokens in the current step
  Holding holding;            ///< KV memory
  Time last_token = sim::kUnset;
  bool is_cached = false;  ///< enters with its whole prompt cached, and gets no tokens for it
};

/// A request whose last token has come.
struct Finished {
  std::uint32_t entry;
  RequestId id;
  Holding holding;
  std::int64_t computed;
};

/// A request of the batch that was withdrawn while a step was under way.
struct Leaving {
  RequestId id;
  workload::Outcome outcome;
};

/// The batch is the decoders, which stand for themselves as sums, and the slots. Where the decoders
/// cannot all have their token, they become slots, and the step is made request by request. With
/// plain stepping all requests are slots and every jump is a single step.
template <StepRules rules>
class StepLoopEngine final : public Instance, public Engine, public Forecaster {
 public:
  /// `reporter`: whose state is scraped when this one's changes; null: its own.
  StepLoopEngine(const InstanceGroup& group, sim::InstanceId id, std::uint32_t engine,
                 signals::Probe* reporter, const Environment& environment)
      : id_(id),
        engine_(engine),
        reporter_(reporter ? *reporter : *this),
        requests_(environment.requests),
        journal_(environment.journal),
        events_(environment.events),
        listener_(environment.listener),
        tells_first_tokens_(environment.tells_first_tokens),
        scrapes_(environment.scrapes),
        quantum_(environment.quantum_ns),
        max_num_seqs_(group.max_num_seqs),
        max_num_batched_tokens_(group.max_num_batched_tokens),
        prefill_cap_(group.long_prefill_token_threshold > 0
                         ? group.long_prefill_token_threshold
                         : std::numeric_limits<std::int64_t>::max()),
        max_model_len_(group.max_model_len > 0 ? group.max_model_len
                                               : std::numeric_limits<std::int64_t>::max()),
        scheduler_(std::visit([&](const auto& c) { return make(c, environment.requests); },
                              group.scheduler)),
        preempting_(scheduler_->preemption()),
        latency_(std::visit(
            [&](const auto& c) { return make(c, environment.seed, sim::InstanceId{engine}); },
            group.latency)),
        stepping_(environment.reference                     ? Stepping::reference
                  : latency_->basis() == LatencyBasis::step ? Stepping::plain
                                                            : Stepping::jumps),
        durations_vary_(latency_->basis() == LatencyBasis::context),
        memory_(group.kv_cache, group.num_kv_blocks, group.block_size_tokens, requests_),
        waiting_(scheduler_->sorts(), requests_),
        decoders_(requests_, memory_.block_size(), environment.meters_tokens) {
    if (environment.meters_tokens) emitted_by_group_.resize(requests_.num_groups());
    const bool in_step = group.output_overhead == OutputOverhead::in_step;
    step_overhead_us_ = in_step ? latency_->output_us() : 0;
    reported_overhead_ = in_step ? Time{0} : quantum_.truncate_us(latency_->output_us());
  }

  /// A copy that goes on elsewhere, where nobody looks at it.
  StepLoopEngine(const StepLoopEngine& other, workload::Journal& journal, sim::EventQueue& events,
                 workload::RequestListener& listener)
      : id_(other.id_),
        engine_(0),
        reporter_(*this),
        requests_(other.requests_),
        journal_(journal),
        events_(events),
        listener_(listener),
        tells_first_tokens_(false),
        scrapes_(nullptr),
        quantum_(other.quantum_),
        max_num_seqs_(other.max_num_seqs_),
        max_num_batched_tokens_(other.max_num_batched_tokens_),
        prefill_cap_(other.prefill_cap_),
        max_model_len_(other.max_model_len_),
        scheduler_(other.scheduler_),
        preempting_(other.preempting_),
        latency_(other.latency_),
        stepping_(other.stepping_),
        durations_vary_(other.durations_vary_),
        step_overhead_us_(other.step_overhead_us_),
        reported_overhead_(other.reported_overhead_),
        memory_(other.memory_),
        waiting_(other.waiting_),
        waiting_since_(other.waiting_since_),
        decoders_(other.decoders_),
        slots_(other.slots_),
        next_entry_(other.next_entry_),
        state_(other.state_),
        jump_(other.jump_),
        preempted_(other.preempted_),
        decode_clock_(other.decode_clock_),
        counters_(other.counters_),
        emitted_by_group_(other.emitted_by_group_),
        leaving_(other.leaving_) {
    const auto take_along = [&](RequestId id) {
      journal.clear(id);
      journal.preemptions[id.index()] = other.journal_.preemptions[id.index()];
      journal.scheduled[id.index()] = other.journal_.scheduled[id.index()];
      journal.first_token[id.index()] = other.journal_.first_token[id.index()];
    };
    for (std::size_t i = 0; i < waiting_.size(); ++i) take_along(waiting_[i].id);
    for (const Slot& slot : slots_) take_along(slot.id);
    for (const Decoders::Member& member : decoders_.members()) take_along(member.id);
  }

  const Forecaster* forecaster() const override { return this; }

  Time predict_first_token(std::span<const Entry> entries, Time now,
                           workload::Journal& scratch) const override {
    struct Nobody final : workload::RequestListener {
      void first_token(RequestId) override {}
      void finished(RequestId) override {}
    } nobody;
    sim::EventQueue events(1);
    StepLoopEngine copy(*this, scratch, events, nobody);
    if (state_ == State::stepping) events.set_alarm(0, end_of_jump());
    if (state_ == State::step_requested) events.push({now, Phase::step_start, 0, 0});
    for (const Entry& one : entries) {
      scratch.clear(one.id);
      events.push({one.at, Phase::ingress, 0, one.id.value});
    }
    const std::size_t row = entries.back().id.index();
    sim::Event event;
    while (!sim::is_set(scratch.first_token[row]) &&
           scratch.outcome[row] != workload::Outcome::rejected && events.pop(kEndOfTime, event)) {
      if (event.phase() == Phase::ingress) copy.enqueue(RequestId{event.subject()}, event.time());
      if (event.phase() == Phase::step_start) copy.start_step(event.time());
      if (event.phase() == Phase::step_end) copy.end_step(event.time());
    }
    return scratch.first_token[row];
  }

  Time entry_delay(RequestId id) const override {
    return quantum_.truncate_us(latency_->entry_us(requests_.input_tokens(id)));
  }

  void enqueue(RequestId id, Time now) override {
    counters_.last_event = std::max(counters_.last_event, now);
    const std::int64_t input = requests_.input_tokens(id);
    const std::int64_t whole = input + requests_.output_tokens(id);
    if (memory_.blocks_for(whole) > memory_.total() || input >= max_model_len_ ||
        whole > max_model_len_) {
      refuse(id, now);
      return;
    }
    take_scrapes(now, true);
    ++counters_.entered;
    journal_.enqueued[id.index()] = now;
    journal_.outcome[id.index()] = workload::Outcome::running;
    catch_up(now);
    const bool head_is_blocked = !waiting_.empty();
    note_waiting(now);
    waiting_.push({.id = id, .rank = scheduler_->rank(id, requests_)});
    if (state_ == State::idle) {
      request_step(now);
    } else if (state_ == State::stepping && jump_.steps > jump_.begun) {
      // Whoever could join the batch at the next step ends the jump. Nobody can where seats or
      // budget are used up, or while the head of the queue, which did not fit, is still the head:
      // memory only gets scarcer during a jump.
      const bool still_blocked = head_is_blocked && waiting_.head().id != id;
      if (!jump_.is_full && !still_blocked) cut_jump();
    }
  }

  void cancel(RequestId id, workload::Outcome outcome, Time now) override {
    if (journal_.outcome[id.index()] != workload::Outcome::running ||
        find_leaving(id) != leaving_.end()) {
      return;
    }
    take_scrapes(now, false);
    counters_.last_event = std::max(counters_.last_event, now);
    catch_up(now);
    const bool is_in_jump = state_ == State::stepping && jump_.steps > jump_.begun;
    const bool is_head = !waiting_.empty() && waiting_.head().id == id;
    note_waiting(now);
    if (const std::optional<Waiting> waiting = waiting_.remove(id)) {
      // Whoever stands behind a blocked head may fit.
      if (is_in_jump && is_head && is_blocked()) cut_jump();
      return withdraw({id, outcome}, waiting->emitted, now);
    }
    leaving_.push_back({id, outcome});
    if (state_ != State::stepping) return take_out_leaving(now);
    if (is_in_jump) cut_jump();
  }

  void start_step(Time now) override {
    take_scrapes(now, true);
    counters_.last_event = now;
    state_ = State::idle;
    std::int64_t decoders_blocks = decoders_.new_blocks(0, 1);
    if (!decoders_.empty() &&
        !(jumps() && memory_suffices(decoders_blocks) && !head_may_preempt())) {
      dissolve_decoders(now);
      decoders_blocks = 0;
    }
    std::int64_t budget = max_num_batched_tokens_ - decoders_.size();
    memory_.take(decoders_blocks);
    for (Slot& slot : slots_) slot.tokens = 0;
    preempted_ = !schedule_slots(budget, now);
    if (!preempted_) schedule_waiting(budget, now);
    if (running() == 0) return events_.clear_alarm(engine_);

    StepLoad load{.decode_requests = decoders_.size(),
                  .context_tokens = decoders_.context_tokens(),
                  .ordinal = counters_.steps};
    bool emits = !decoders_.empty();
    for (const Slot& slot : slots_) {
      if (slot.tokens == 0 && !slot.is_cached) continue;
      if (decodes(slot)) {
        ++load.decode_requests;
      } else {
        load.prefill_tokens += slot.tokens;
      }
      load.context_tokens += slot.computed;
      emits = emits || slot.computed + slot.tokens == known(slot);
    }
    jump_ = {.start = now,
             .duration = duration_of(load, emits),
             .load = load,
             .emits = emits,
             .is_full = budget == 0 || (running() == max_num_seqs_ && !preempting_.margin)};
    count_begun(1);
    jump_.steps = jumps() && !preempted_ ? length_of_jump() : 1;
    state_ = State::stepping;
    events_.set_alarm(engine_, end_of_jump());
    if constexpr (rules.completion == Completion::step_start) {
      if (jump_.steps == 1) take_effect(0);
    }
  }

  void end_step(Time now) override {
    take_scrapes(now, false);
    counters_.last_event = now;
    if (durations_vary_) catch_up(now);
    if (!jump_.effects_taken) {
      const std::int64_t steps = jump_.steps - jump_.begun;
      if (steps > 0) begin(steps);
      take_effect(steps);
    }
    state_ = State::idle;
    if (!leaving_.empty()) take_out_leaving(now);
    if (running() > 0 || !waiting_.empty()) {
      request_step(now);
    } else {
      events_.clear_alarm(engine_);
    }
  }

  void close(Time end) override {
    if (state_ == State::stepping) {
      // Every step that starts or ends up to the end, inclusive.
      catch_up(end + Time{1});
      if (jump_.begun > 1) counters_.last_event = std::max(counters_.last_event, jump_.start);
      // Where tokens come as the step starts, those of the last one have come. Nobody finishes in
      // a step of a jump that is not over.
      if (rules.completion == Completion::step_start && !jump_.effects_taken) {
        jump_.start = jump_.end_of_step();
        make_silent_steps(1);
        jump_.effects_taken = true;
      }
    }
    note_waiting(counters_.last_event);
    counters_.kv_hits = memory_.counts().hits;
    counters_.kv_misses = memory_.counts().misses;
    counters_.kv_lookups = memory_.counts().lookups;
    counters_.peak_kv_utilization =
        static_cast<double>(memory_.counts().most_in_use) / static_cast<double>(memory_.total());
    for (const Slot& slot : slots_) journal_.emitted[slot.id.index()] = slot.emitted;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      journal_.emitted[waiting_[i].id.index()] = waiting_[i].emitted;
    }
    for (const Decoders::Member& member : decoders_.members()) {
      journal_.emitted[member.id.index()] = static_cast<std::int32_t>(decoders_.emitted(member));
      stop_reporting(member.id);
    }
  }

  signals::InstanceSignal read(Time now) override {
    take_scrapes(now, false);
    catch_up(now);
    const signals::Occupancy here = occupancy();
    const bool is_made = awaits_effects(now);
    std::int64_t prefill_tokens = waiting_.tokens();
    for (const Slot& slot : slots_) {
      if (decodes(slot)) continue;
      prefill_tokens += known(slot) - slot.computed - (is_made ? slot.tokens : 0);
    }
    return {.waiting = here.waiting,
            .running = here.running,
            .kv_utilization = memory_.utilization(),
            .free_blocks = memory_.free(),
            .prefill_tokens = prefill_tokens,
            .prefix_hits = memory_.counts().hits,
            .prefix_lookups = memory_.counts().lookups,
            .measured = now};
  }
  signals::Capacity capacity() const override {
    return {max_num_seqs_, max_num_batched_tokens_, memory_.total(), memory_.block_size().tokens()};
  }
  signals::Occupancy occupancy() const override {
    return {static_cast<std::int32_t>(waiting_.size()), static_cast<std::int32_t>(running())};
  }
  std::int64_t cached_blocks(RequestId id, Time now) override {
    take_scrapes(now, true);
    catch_up(now);
    return memory_.count_found(id);
  }
  void add_emitted(std::span<std::int64_t> by_group, Time now) override {
    take_scrapes(now, false);
    catch_up(now);
    for (std::size_t i = 0; i < by_group.size(); ++i) by_group[i] += emitted_by_group_[i];
    if (awaits_effects(now)) decoders_.count_tokens(by_group, 1);
  }
  const Counters& counters() const override { return counters_; }
  Stepping stepping() const override { return stepping_; }

  void check_memory() const override {
    // Blocks are taken as a step begins, tokens count once it has taken effect.
    const bool ahead = state_ == State::stepping && !jump_.effects_taken;
    std::int64_t held = decoders_.held_blocks(ahead ? 1 : 0) + memory_.num_named_in_use();
    for (const Decoders::Member& member : decoders_.members()) {
      held += memory_.own_blocks({.special = member.special});
    }
    for (const Slot& slot : slots_) held += memory_.own_blocks(slot.holding);
    sim::require(held + memory_.free() == memory_.total() && memory_.free() >= 0,
                 "instance " + std::to_string(id_.value) + " holds " + std::to_string(held) +
                     " KV blocks and has " + std::to_string(memory_.free()) + " free of " +
                     std::to_string(memory_.total()));
  }

 private:
  enum class State : std::uint8_t { idle, step_requested, stepping };

  /// Consecutive steps of an unchanged batch, of which the last may change it. They are begun
  /// lazily: `begun` of `steps` have been, the latest at `start`.
  struct Jump {
    Time start{0};
    Time duration{0};  ///< of the latest step begun
    StepLoad load;     ///< likewise
    bool emits = false;
    bool is_full = false;  ///< nobody can join whatever the queue holds: no seat or no budget left
    bool effects_taken = false;
    std::int64_t begun = 1;
    std::int64_t steps = 1;

    Time end_of_step() const { return start + duration; }
  };

  // Within a jump, a step that ends now (or, where effects come first, has begun) has taken no
  // effect yet, though what it does is done.
  bool awaits_effects(Time now) const {
    return state_ == State::stepping && !jump_.effects_taken &&
           (rules.completion == Completion::step_start || jump_.end_of_step() == now);
  }
  // Where taking a block forgets whichever is registered like it, it matters in which order the
  // requests of a step take theirs: then every step is made request by request.
  bool jumps() const { return stepping_ == Stepping::jumps && !memory_.order_matters(); }
  std::int64_t running() const { return decoders_.size() + std::ssize(slots_); }
  std::int64_t known(const Slot& slot) const {
    return requests_.input_tokens(slot.id) + slot.emitted;
  }
  bool decodes(const Slot& slot) const {
    return slot.emitted > 0 && known(slot) - slot.computed == 1;
  }
  bool is_finished(const Slot& slot) const {
    return slot.emitted == requests_.goal_tokens(slot.id);
  }

  // What is scraped of the state that is about to change, or to be brought up to date. The end of a
  // step precedes a scrape of the same instant, everything else follows it.
  void take_scrapes(Time now, bool inclusive) {
    if (scrapes_) scrapes_->take(id_, reporter_, now, inclusive);
  }

  void refuse(RequestId id, Time now) {
    ++counters_.refused;
    journal_.outcome[id.index()] = workload::Outcome::rejected;
    journal_.reason[id.index()] = {workload::Stage::ingress, 0};
    listener_.finished(id);
    events_.push({now, Phase::permit_release, engine_, id.value});
  }

  // Accounts for the queue's length up to now; called before it changes.
  void note_waiting(Time now) {
    counters_.waiting_time_s +=
        static_cast<double>(waiting_.size()) * sim::to_seconds(now - waiting_since_);
    waiting_since_ = now;
  }

  // The step begins once all else that is due at this instant has happened.
  void request_step(Time now) {
    if (!events_.is_due(now, engine_)) return start_step(now);
    state_ = State::step_requested;
    events_.clear_alarm(engine_);
    events_.push({now, Phase::step_start, engine_, engine_});
  }

  Time duration_of(const StepLoad& load, bool emits) const {
    double step_us = latency_->step_us(load);
    if (emits) step_us += step_overhead_us_;
    return std::max(quantum_.span(), quantum_.truncate_us(step_us));
  }

  void count_begun(std::int64_t steps) {
    counters_.steps += steps;
    counters_.waiting_after_steps += steps * static_cast<std::int64_t>(waiting_.size());
  }

  // ---- the batch as slots ------------------------------------------------------------------

  std::int64_t share_of(const Slot& slot, std::int64_t budget) const {
    const std::int64_t need = known(slot) - slot.computed;
    return std::min({need, decodes(slot) ? need : prefill_cap_, budget});
  }

  // Gives tokens to slots in order, preempting where memory runs out. False if it preempted.
  bool schedule_slots(std::int64_t& budget, Time now) {
    bool preempted = false;
    for (std::size_t i = 0; i < slots_.size() && budget > 0;) {
      Slot& slot = slots_[i];
      const std::int64_t tokens = share_of(slot, budget);
      if (memory_.extend(slot.id, slot.holding, slot.computed + tokens)) {
        slot.tokens = tokens;
        budget -= tokens;
        ++i;
      } else {
        const std::size_t victim =
            preempting_.takes_least_urgent ? least_urgent() : slots_.size() - 1;
        if (victim < i) --i;
        preempt(victim, budget, now);
        preempted = true;
      }
    }
    return !preempted;
  }

  std::int64_t rank_of(const Slot& slot) const { return scheduler_->rank(slot.id, requests_); }
  // The slot of the lowest priority; of equals the one that arrived last, then entered last.
  // Precondition: there are slots.
  std::size_t least_urgent() const {
    const auto key = [this](const Slot& slot) {
      return std::pair(rank_of(slot), requests_.arrival(slot.id));
    };
    std::size_t last = 0;
    for (std::size_t i = 1; i < slots_.size(); ++i) {
      if (key(slots_[i]) >= key(slots_[last])) last = i;
    }
    return last;
  }

  // Its part in the step that is being made is given to others. Blocks that this part fills are
  // registered by now.
  void preempt(std::size_t which, std::int64_t& budget, Time now) {
    Slot& victim = slots_[which];
    budget += victim.tokens;
    memory_.give_up(victim.id, victim.holding, victim.computed + victim.tokens);
    ++counters_.preemptions;
    ++journal_.preemptions[victim.id.index()];
    note_waiting(now);
    waiting_.push_front({.id = victim.id,
                         .emitted = rules.preemption == Preemption::restart ? 0 : victim.emitted,
                         .rank = rank_of(victim),
                         .last_token = victim.last_token});
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  // Takes requests from the head of the queue while seats, budget and memory last, and while others
  // give way to it; else it blocks, as does a head that has just given way itself.
  void schedule_waiting(std::int64_t& budget, Time now) {
    gave_way_.clear();
    while (!waiting_.empty() && budget > 0 &&
           std::find(gave_way_.begin(), gave_way_.end(), waiting_.head().id) == gave_way_.end()) {
      if (running() < max_num_seqs_ && admit_head(budget, now)) continue;
      if (!preempt_for_head(budget, now)) return;
    }
  }

  bool admit_head(std::int64_t& budget, Time now) {
    const Waiting& head = waiting_.head();
    Slot slot{.id = head.id,
              .entry = next_entry_,
              .emitted = head.emitted,
              .last_token = head.last_token};
    const bool returns = journal_.preemptions[slot.id.index()] > 0;
    slot.computed = memory_.find(slot.id, known(slot), returns);
    slot.tokens = share_of(slot, budget);
    slot.is_cached = slot.tokens == 0;
    if (!memory_.admit(slot.id, slot.holding, slot.tokens)) return false;
    note_waiting(now);
    waiting_.pop();
    ++next_entry_;
    budget -= slot.tokens;
    Time& scheduled = journal_.scheduled[slot.id.index()];
    if (rules.reports || !sim::is_set(scheduled)) scheduled = now;
    slots_.push_back(slot);
    return true;
  }

  bool gives_way_to_head(std::int64_t rank) const {
    return rank - waiting_.head().rank >= preempting_.margin.value_or(0);
  }
  // Whether anybody in the batch is to give way to the head of the queue if it does not fit. If
  // nobody is, nobody is for those behind it; and as long as head and batch stay, it stays so.
  bool head_may_preempt() const {
    if (!preempting_.margin || waiting_.empty()) return false;
    const auto gives_way = [this](const auto& one) {
      return gives_way_to_head(scheduler_->rank(one.id, requests_));
    };
    const auto decoders = decoders_.members();
    return std::any_of(slots_.begin(), slots_.end(), gives_way) ||
           std::any_of(decoders.begin(), decoders.end(), gives_way);
  }
  bool preempt_for_head(std::int64_t& budget, Time now) {
    if (!preempting_.margin || slots_.empty() ||
        std::ssize(gave_way_) == preempting_.max_per_step) {
      return false;
    }
    const std::size_t victim = least_urgent();
    if (!gives_way_to_head(rank_of(slots_[victim]))) return false;
    gave_way_.push_back(slots_[victim].id);
    preempt(victim, budget, now);
    preempted_ = true;
    return true;
  }

  // ---- the batch as sums -------------------------------------------------------------------

  // Whether the decoders, who begin so many blocks, and whoever else gets tokens find memory for
  // them; else somebody is preempted. The budget needs no look: every decoder had its token in the
  // last step, and what stands before it asks for no more than then, so all of them get theirs
  // again, and a slot that falls short stands behind them all.
  bool memory_suffices(std::int64_t decoders_blocks) const {
    std::int64_t budget = max_num_batched_tokens_ - decoders_.size();
    std::int64_t blocks = decoders_blocks;
    for (const Slot& slot : slots_) {
      const std::int64_t tokens = share_of(slot, budget);
      blocks += memory_.blocks_for(slot.computed + tokens) - slot.holding.blocks;
      budget -= tokens;
    }
    return blocks <= memory_.free();
  }

  // The decoders become slots, between two steps.
  void dissolve_decoders(Time now) {
    decoders_.take_all(members_);
    for (const Decoders::Member& member : members_) {
      Slot slot{.id = member.id,
                .entry = member.entry,
                .emitted = static_cast<std::int32_t>(decoders_.emitted(member)),
                .computed = decoders_.computed(member),
                .last_token = now};  // steps follow each other without a pause
      slot.holding = {.blocks = memory_.blocks_for(slot.computed),
                      .special = member.special,
                      .returned = journal_.preemptions[member.id.index()] > 0};
      stop_reporting(slot.id);
      slots_.push_back(slot);
    }
    std::sort(slots_.begin(), slots_.end(),
              [](const Slot& a, const Slot& b) { return a.entry < b.entry; });
  }

  // Whether the head of the queue may wait for memory alone.
  bool is_blocked() const { return !waiting_.empty() && !jump_.is_full; }

  // For how many steps from this one, whose tokens have been given, the batch stays as it is. All
  // of these hold for each of them:
  // - every slot gets the same part of its prompt, and none completes it;
  // - no decoder gets its last token, unless that is the last of the steps (where effects come as a
  //   step starts, the one before);
  // - nobody joins: the queue is empty, or its head found no seat, no budget or no memory, of which
  //   there will not be more, and nobody who gives way to it. An arrival that may join cuts the
  //   jump short (`enqueue`);
  // - there is memory for all tokens, so that nobody is preempted;
  // - the duration of a step follows from sums over the batch, which are known ahead.
  std::int64_t length_of_jump() const {
    std::int64_t steps = std::numeric_limits<std::int64_t>::max();
    if (!decoders_.empty()) {
      steps = decoders_.steps_to_finish();
      if (rules.completion == Completion::step_start) steps = std::max<std::int64_t>(1, steps - 1);
    }
    for (const Slot& slot : slots_) {
      if (slot.is_cached) return 1;
      if (slot.tokens == 0) continue;
      const std::int64_t need = known(slot) - slot.computed;
      if (slot.tokens == need) return 1;
      steps = std::min(steps, (need - 1) / slot.tokens);
    }
    // A prompt that fills blocks which others may share can help a blocked head of the queue, and
    // the clock ends some time.
    if (is_blocked() && !slots_.empty() && !memory_.counts_only()) return 1;
    if (durations_vary_) steps = std::min(steps, kLongestUnevenJump);
    steps = std::min(steps, 1 + kEndOfTime.ns / jump_.duration.ns);
    return steps > 1 ? 1 + steps_within_memory(steps - 1) : steps;
  }

  // How many of the `most` steps after the first find memory. Where somebody would notice, they do
  // not take a block that can still be found: a head of the queue that is blocked may need fewer
  // blocks once one is gone, and prompts name theirs step by step.
  std::int64_t steps_within_memory(std::int64_t most) const {
    const std::int64_t free =
        is_blocked() || !slots_.empty() ? memory_.takeable_unnoticed() : memory_.free();
    // Usually there is plenty: a token begins one block at most.
    std::int64_t tokens = decoders_.size() * most;
    for (const Slot& slot : slots_) tokens += slot.tokens * most + 1;
    if (tokens <= free) return most;
    std::int64_t fits = 0;
    std::int64_t too_many = most + 1;
    while (too_many - fits > 1) {
      const std::int64_t middle = fits + (too_many - fits) / 2;
      (blocks_of_steps(middle) <= free ? fits : too_many) = middle;
    }
    return fits;
  }

  // Blocks that the next `steps` steps after the latest begun take.
  std::int64_t blocks_of_steps(std::int64_t steps) const {
    std::int64_t blocks = decoders_.new_blocks(1, steps);
    for (const Slot& slot : slots_) {
      blocks += memory_.blocks_for(slot.computed + (steps + 1) * slot.tokens) -
                memory_.blocks_for(slot.computed + slot.tokens);
    }
    return blocks;
  }

  // The load of the step after one of `load`.
  StepLoad following(StepLoad load) const {
    load.context_tokens += load.decode_requests + load.prefill_tokens;
    ++load.ordinal;
    return load;
  }

  Time end_of_jump() const {
    const std::int64_t left = jump_.steps - jump_.begun;
    if (!durations_vary_) return jump_.end_of_step() + Time{left * jump_.duration.ns};
    Time end = jump_.end_of_step();
    StepLoad load = jump_.load;
    for (std::int64_t i = 0; i < left && end < kEndOfTime; ++i) {
      load = following(load);
      end += duration_of(load, jump_.emits);
    }
    return end;
  }

  // Ends the jump with the step under way.
  void cut_jump() {
    jump_.steps = jump_.begun;
    events_.set_alarm(engine_, jump_.end_of_step());
  }

  // Begins the steps of the jump that start before `now`.
  void catch_up(Time now) {
    if (state_ != State::stepping) return;
    std::int64_t left = jump_.steps - jump_.begun;
    if (durations_vary_) {
      for (; left > 0 && jump_.end_of_step() < now; --left) {
        begin(1);
        make_silent_steps(1);
        jump_.load = following(jump_.load);
        jump_.duration = duration_of(jump_.load, jump_.emits);
      }
    } else if (left > 0 && jump_.end_of_step() < now) {
      const std::int64_t steps =
          std::min(left, (now - jump_.start - Time{1}).ns / jump_.duration.ns);
      begin(steps);
      make_silent_steps(steps);
    }
  }

  // The next steps of the jump begin, which take as long as the one under way. What that one and
  // all but the last of these do to the batch is yet to be made.
  void begin(std::int64_t steps) {
    memory_.take(decoders_.new_blocks(1, steps));
    // Step by step where it matters who fills a block last.
    for (std::int64_t step = memory_.counts_only() ? steps : 1; step <= steps; ++step) {
      for (Slot& slot : slots_) {
        memory_.extend(slot.id, slot.holding, slot.computed + (step + 1) * slot.tokens);
      }
    }
    jump_.start += Time{steps * jump_.duration.ns};
    jump_.begun += steps;
    count_begun(steps);
  }

  // The effects of steps in which only decoders emit, and none for the last time.
  void make_silent_steps(std::int64_t steps) {
    emit_decoders(steps);
    for (Slot& slot : slots_) {
      slot.computed += steps * slot.tokens;
      report_first_token(slot, jump_.start);
    }
  }

  // ---- effects -----------------------------------------------------------------------------

  // The tokens of the step under way exist, and of as many silent ones before it: emissions,
  // completions, released memory.
  void take_effect(std::int64_t silent_steps) {
    jump_.effects_taken = true;
    emit_decoders(silent_steps + 1);
    finished_.clear();
    while (decoders_.has_finished()) {
      const Decoders::Member member = decoders_.pop_finished();
      const std::int64_t computed = decoders_.computed(member);
      stop_reporting(member.id);
      finished_.push_back({member.entry,
                           member.id,
                           {.blocks = memory_.blocks_for(computed), .special = member.special},
                           computed});
    }
    // Sums are of no use while memory is short or the budget too small for one token each.
    const bool may_join = jumps() && !preempted_ && running() <= max_num_batched_tokens_;
    const std::size_t finished_decoders = finished_.size();
    for (Slot& slot : slots_) {
      slot.computed += silent_steps * slot.tokens;
      advance(slot);
    }
    std::erase_if(slots_, [&](const Slot& slot) {
      if (is_finished(slot)) {
        finished_.push_back({slot.entry, slot.id, slot.holding, slot.computed});
        return true;
      }
      if (!may_join || !decodes(slot) || slot.last_token != jump_.end_of_step()) return false;
      decoders_.join(slot.id, slot.entry, slot.emitted, slot.holding.special);
      start_reporting(slot.id);
      return true;
    });
    if (finished_decoders > 0 && finished_.size() > finished_decoders) {
      std::sort(finished_.begin(), finished_.end(),
                [](const Finished& a, const Finished& b) { return a.entry < b.entry; });
    }
    for (const Finished& one : finished_) complete(one);
  }

  void advance(Slot& slot) {
    const std::int64_t before = known(slot);
    slot.computed += slot.tokens;
    if ((slot.tokens > 0 || slot.is_cached) && slot.computed == before) {
      slot.is_cached = false;
      ++slot.emitted;
      ++counters_.tokens_emitted;
      if (meters_tokens()) ++emitted_by_group_[requests_.group(slot.id)];
      record_token(slot);
    }
    report_first_token(slot, jump_.end_of_step());
  }

  void record_token(Slot& slot) {
    const std::size_t row = slot.id.index();
    const Time at = jump_.end_of_step();
    if (!sim::is_set(journal_.first_token[row])) {
      journal_.first_token[row] = at;
      if (tells_first_tokens_) tell_first_token(slot.id);
    }
    if (slot.emitted > 1) {
      const Time gap = rules.reports ? reported_gap() : at - slot.last_token;
      if constexpr (rules.reports) journal_.reported_decode[row] += gap;
      if (requests_.is_counted(slot.id)) {
        journal_.token_gaps.add(requests_.group(slot.id), gap, 1);
      }
    }
    slot.last_token = at;
  }

  // Where effects precede the end of their step, the news waits for it.
  void tell_first_token(RequestId id) {
    if constexpr (rules.completion == Completion::step_end) {
      listener_.first_token(id);
    } else {
      events_.push({jump_.end_of_step(), Phase::first_token, engine_, id.value});
    }
  }

  bool meters_tokens() const { return !emitted_by_group_.empty(); }

  // Every decoder emits a token in each of `steps` steps. Steps follow each other without a pause,
  // so the gap before each token is its step's duration.
  void emit_decoders(std::int64_t steps) {
    if (decoders_.empty()) return;
    const Time gap = reported_gap();
    counters_.tokens_emitted += steps * decoders_.size();
    decoders_.record_gaps(journal_.token_gaps, gap, steps);
    if (meters_tokens()) decoders_.count_tokens(emitted_by_group_, steps);
    decoders_.advance(steps);
    if constexpr (rules.reports) decode_clock_ += Time{steps * gap.ns};
  }

  void complete(const Finished& finished) {
    const RequestId id = finished.id;
    const std::size_t row = id.index();
    memory_.leave(finished.holding, finished.computed, requests_.output_tokens(id) > 0);
    if (const auto leaving = find_leaving(id); leaving != leaving_.end()) {
      withdraw(*leaving, requests_.goal_tokens(id), jump_.end_of_step());
      leaving_.erase(leaving);
      return;
    }
    ++counters_.completed;
    journal_.emitted[row] = requests_.goal_tokens(id);
    journal_.finished[row] = jump_.end_of_step();
    journal_.outcome[row] = workload::Outcome::completed;
    listener_.finished(id);
    events_.push({jump_.end_of_step(), Phase::permit_release, engine_, id.value});
  }

  // ---- requests withdrawn ------------------------------------------------------------------

  std::vector<Leaving>::iterator find_leaving(RequestId id) {
    return std::find_if(leaving_.begin(), leaving_.end(),
                        [id](const Leaving& one) { return one.id == id; });
  }

  // Between two steps. Those whose last token came with the step just made are gone already.
  void take_out_leaving(Time now) {
    dissolve_decoders(now);
    for (const Leaving& one : leaving_) {
      const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                     [&](const Slot& other) { return other.id == one.id; });
      // Nobody will ask for its own blocks again, as after a completion.
      memory_.leave(slot->holding, slot->computed, false);
      withdraw(one, slot->emitted, now);
      slots_.erase(slot);
    }
    leaving_.clear();
  }

  void withdraw(const Leaving& one, std::int32_t emitted, Time now) {
    ++counters_.cancelled;
    journal_.emitted[one.id.index()] = emitted;
    journal_.outcome[one.id.index()] = one.outcome;
    listener_.finished(one.id);
    events_.push({now, Phase::permit_release, engine_, one.id.value});
  }

  // ---- reported latencies ------------------------------------------------------------------

  Time reported_gap() const {
    return rules.reports ? jump_.duration + reported_overhead_ : jump_.duration;
  }
  void report_first_token(const Slot& slot, Time end_of_step) {
    if constexpr (rules.reports) {
      if (slot.emitted != 1) return;
      journal_.reported_ttft[slot.id.index()] =
          end_of_step + reported_overhead_ - requests_.arrival(slot.id);
    }
  }
  // What the decoders' gaps add up to is read off one clock, from when a request joins them.
  void start_reporting(RequestId id) {
    if constexpr (rules.reports) {
      journal_.reported_decode[id.index()] += Time{-decode_clock_.ns};
    }
  }
  void stop_reporting(RequestId id) {
    if constexpr (rules.reports) journal_.reported_decode[id.index()] += decode_clock_;
  }

  sim::InstanceId id_;
  std::uint32_t engine_;
  signals::Probe& reporter_;
  const workload::RequestTable& requests_;
  workload::Journal& journal_;
  sim::EventQueue& events_;
  workload::RequestListener& listener_;
  bool tells_first_tokens_;
  signals::Scrapes* scrapes_;
  sim::Quantum quantum_;
  std::int64_t max_num_seqs_;
  std::int64_t max_num_batched_tokens_;
  std::int64_t prefill_cap_;
  std::int64_t max_model_len_;
  std::shared_ptr<const SchedulerPolicy> scheduler_;  // free of state, as is the latency model
  PreemptionRules preempting_;
  std::shared_ptr<const LatencyModel> latency_;
  Stepping stepping_;
  bool durations_vary_;  // within a jump
  double step_overhead_us_ = 0;
  Time reported_overhead_{0};

  KvMemory memory_;
  WaitingQueue waiting_;
  Time waiting_since_{0};
  Decoders decoders_;
  std::vector<Slot> slots_;  // in order of entry
  std::uint32_t next_entry_ = 0;
  State state_ = State::idle;
  Jump jump_;
  bool preempted_ = false;
  Time decode_clock_{0};

  Counters counters_;
  std::vector<std::int64_t> emitted_by_group_;  // empty unless it is asked for
  std::vector<Leaving> leaving_;                // with the step under way
  // Kept for their memory.
  std::vector<RequestId> gave_way_;  // to a head of the queue in this step
  std::vector<Decoders::Member> members_;
  std::vector<Finished> finished_;
};

template <StepRules rules>
std::unique_ptr<Instance> make_engine(const InstanceGroup& group, sim::InstanceId id,
                                      signals::Probe* reporter, const Environment& environment,
                                      std::vector<Engine*>& engines) {
  auto engine = std::make_unique<StepLoopEngine<rules>>(
      group, id, static_cast<std::uint32_t>(engines.size()), reporter, environment);
  engines.push_back(engine.get());
  return engine;
}

using MakeEngine = decltype(&make_engine<StepRules{}>);

template <Completion completion, Preemption preemption>
MakeEngine reporting(bool reports) {
  return reports ? &make_engine<StepRules{completion, preemption, true}>
                 : &make_engine<StepRules{completion, preemption, false}>;
}

template <Completion completion>
MakeEngine completing(const InstanceGroup& group, bool reports) {
  return group.preemption == Preemption::restart
             ? reporting<completion, Preemption::restart>(reports)
             : reporting<completion, Preemption::keep_emitted>(reports);
}

}  // namespace

std::unique_ptr<Instance> make(const StepLoop&, const InstanceGroup& group, sim::InstanceId id,
                               signals::Probe* reporter, const Environment& environment,
                               std::vector<Engine*>& engines) {
  const bool reports = environment.reports_latencies;
  const MakeEngine make_one = group.completion == Completion::step_start
                                  ? completing<Completion::step_start>(group, reports)
                                  : completing<Completion::step_end>(group, reports);
  return make_one(group, id, reporter, environment, engines);
}

}  // namespace spillway::instance
