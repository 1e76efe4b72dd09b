#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "instance/ingress/rules.h"
#include "instance/instance.h"

namespace spillway::instance {

/// An instance behind an ingress that holds requests back or refuses them. It listens to the engine
/// in the run's place.
///
/// Whoever may enter because another has left does so by an event of phase `ingress`, at the same
/// instant and before those that arrive then.
class Gated final : public Instance, public workload::RequestListener {
 public:
  /// `first_reason`: position of its reasons among the worker's; `engine`: id of the first engine
  /// behind it.
  Gated(const IngressRules& rules, std::size_t first_reason, sim::InstanceId id,
        std::uint32_t engine, const Environment& environment);
  /// In which the instance behind it is to be made, and then set.
  const Environment& inside() const { return inside_; }
  void set(std::unique_ptr<Instance> inner) { inner_ = std::move(inner); }

  std::size_t next_rank() const override { return inner_->next_rank(); }
  void sent(std::size_t rank) override { inner_->sent(rank); }
  void left(std::size_t rank) override { inner_->left(rank); }
  sim::Time entry_delay(sim::RequestId id) const override { return inner_->entry_delay(id); }
  void enqueue(sim::RequestId id, sim::Time now) override;
  void cancel(sim::RequestId id, workload::Outcome outcome, sim::Time now) override;
  void let_in(sim::Time now) override;
  void expire(sim::Time now) override;
  void close(sim::Time end) override;
  void add_emitted(std::span<std::int64_t> by_group, sim::Time now) override {
    inner_->add_emitted(by_group, now);
  }
  std::size_t num_ranks() const override { return inner_->num_ranks(); }
  Instance& rank(std::size_t i) override { return inner_->rank(i); }
  sim::Time foresee(std::span<const Entry>, sim::Time, workload::Journal&) const override {
    sim::require(false, "nobody foresees what an ingress does");
    return sim::kUnset;
  }
  const IngressCounts* ingress() const override { return &counts_; }
  Stepping stepping() const override { return inner_->stepping(); }
  const Counters& counters() const override { return counters_; }
  void check_memory() const override { inner_->check_memory(); }

  signals::InstanceSignal read(sim::Time now) override { return inner_->read(now); }
  signals::Occupancy occupancy() const override { return inner_->occupancy(); }
  signals::Capacity capacity() const override { return inner_->capacity(); }
  std::int64_t cached_blocks(sim::RequestId id, sim::Time now) override {
    return inner_->cached_blocks(id, now);
  }

  void first_token(sim::RequestId id) override;
  void finished(sim::RequestId id) override;

 private:
  struct Waiting {
    sim::RequestId id;
    sim::Time deadline;
  };

  bool may_enter() const {
    return counts_.unfinished < rules_.most_unfinished &&
           counts_.awaiting_response < rules_.most_awaiting_response;
  }
  void enter(sim::RequestId id, sim::Time now);
  void refuse(sim::RequestId id, std::uint8_t reason, sim::Time now);
  void refuse_overdue(sim::Time now);
  // Somebody has left at `at`: whoever waits may enter then.
  void wake(sim::Time at);
  void watch_deadlines();

  IngressRules rules_;
  std::size_t first_reason_;
  sim::InstanceId id_;
  std::uint32_t engine_;
  workload::Journal& journal_;
  sim::EventQueue& events_;
  workload::RequestListener& listener_;
  bool tells_first_tokens_;
  Environment inside_;
  std::unique_ptr<Instance> inner_;
  std::deque<Waiting> waiting_;  // in order of arrival, and so of deadline
  sim::Time wake_due_ = sim::kForever;
  sim::Time expiry_due_ = sim::kForever;
  bool newest_next_ = false;
  IngressCounts counts_;
  Counters counters_;
};

}  // namespace spillway::instance
