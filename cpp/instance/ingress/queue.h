#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "instance/ingress/forwarding.h"
#include "instance/ingress/rules.h"
#include "instance/instance.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"

namespace spillway::instance {

/// The queue of an ingress that holds requests back or refuses them, with the instance behind it.
/// It listens to the engine in place of the run.
///
/// An event of phase `ingress` assigns a place that becomes free, at the same instant and before
/// the arrivals of that instant.
class IngressQueue final : public Forwarding, public workload::RequestListener {
 public:
  /// `first_reason`: position of its reasons among the worker's; `engine`: id of the first engine
  /// behind it.
  IngressQueue(const IngressRules& rules, std::size_t first_reason, sim::InstanceId id,
               std::uint32_t engine, const Environment& environment);
  /// Environment for the instance behind it.
  const Environment& inner_environment() const { return inner_environment_; }

  /// Why a request would be refused because of the engine's queue, with these requests and prompt
  /// tokens more in it; unset: it would not be.
  std::optional<std::uint8_t> reason_to_refuse(std::int64_t more_requests, std::int64_t more_tokens,
                                               sim::Time now);
  void refuse(sim::RequestId id, std::uint8_t reason, sim::Time now);

  void enqueue(sim::RequestId id, std::size_t rank, sim::Time now) override;
  void cancel(sim::RequestId id, std::size_t rank, workload::Outcome outcome,
              sim::Time now) override;
  void admit_waiting(sim::Time now) override;
  void expire(sim::Time now) override;
  void close(sim::Time end) override;
  void crash(sim::Time now) override;
  void suspend(sim::Time now) override;
  void resume(sim::Time now) override;
  void set_slowness(double factor, sim::Time now) override { inner().set_slowness(factor, now); }
  Loss lose_kv(bool cached_only, sim::Time now) override {
    return inner().lose_kv(cached_only, now);
  }
  const Counters& counters() const override { return counters_; }
  const IngressCounts* ingress() const override { return &counts_; }

  void first_token(sim::RequestId id) override;
  void finished(sim::RequestId id) override;
  void released(sim::RequestId id) override { listener_.released(id); }

 private:
  struct Waiting {
    sim::RequestId id;
    std::size_t rank;
    sim::Time deadline;
  };

  bool may_enter() const {
    return counts_.unfinished < rules_.most_unfinished &&
           counts_.awaiting_response < rules_.most_awaiting_response;
  }
  void enter(sim::RequestId id, std::size_t rank, sim::Time now);
  void refuse_overdue(sim::Time now);
  // A place becomes free at `at`: waiting requests may then enter.
  void wake(sim::Time at);
  void watch_deadlines();

  IngressRules rules_;
  std::size_t first_reason_;
  sim::InstanceId id_;
  std::uint32_t engine_;
  workload::RequestStates& states_;
  sim::EventQueue& events_;
  workload::RequestListener& listener_;
  bool notifies_first_tokens_;
  Environment inner_environment_;
  std::deque<Waiting> waiting_;  // in order of arrival, and therefore of deadline
  sim::Time wake_due_ = sim::kForever;
  sim::Time expiry_due_ = sim::kForever;
  bool newest_next_ = false;
  bool is_suspended_ = false;
  IngressCounts counts_;
  Counters counters_;
};

}  // namespace spillway::instance
