#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// What a gateway has admitted and has had no first token of yet, and how the instances have
/// answered: its own record, always fresh. Only kept where some policy reads it.
///
/// Uncached tokens are those of a prompt that were not sent to the instance before, as far as the
/// gateway remembers; of a request that is still in a queue, the fewest over the instances.
class Outstanding {
 public:
  struct Sum {
    std::int64_t requests = 0;
    std::int64_t uncached_tokens = 0;

    Sum& operator+=(const Sum& other) {
      requests += other.requests;
      uncached_tokens += other.uncached_tokens;
      return *this;
    }
  };
  /// Requests that leave an instance.
  struct Releases {
    sim::Time last = sim::kUnset;  ///< of this busy period
    double mean_gap_s = 0;         ///< of late; 0: not known
  };

  Outstanding(const workload::RequestTable& requests, std::size_t num_instances);

  // ---- the way of a request ----------------------------------------------------------------

  /// It has joined a queue.
  void admitted(sim::RequestId id, std::int64_t uncached_tokens);
  /// It has left the queue undispatched.
  void left_queue(sim::RequestId id);
  /// It has left the queue for an instance.
  void sent(sim::RequestId id, sim::InstanceId instance, std::int64_t uncached_tokens,
            sim::Time now);
  void first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now);
  /// It has left the instance, with a first token or without.
  void ended(sim::RequestId id, sim::InstanceId instance, sim::Time now);

  // ---- what is known -----------------------------------------------------------------------

  /// Admitted and not sent yet, by class.
  const Sum& queued(std::size_t slo_class) const { return queued_[slo_class]; }
  /// Sent there and without a first token, by class.
  const Sum& awaiting(sim::InstanceId instance, std::size_t slo_class) const {
    return at(instance).awaiting[slo_class];
  }
  /// Those of them that were sent later than `since`.
  Sum sent_after(sim::InstanceId instance, sim::Time since) const;
  /// Sent there and not finished.
  std::int64_t in_flight(sim::InstanceId instance) const { return at(instance).in_flight; }
  /// Those of them with a first token.
  std::int64_t decoding(sim::InstanceId instance) const {
    return at(instance).in_flight - at(instance).awaiting_requests;
  }
  /// When a step is last known to have ended or begun there: a first token or an end, or the first
  /// request that was sent to it idle. kUnset: never.
  sim::Time last_known_step(sim::InstanceId instance) const { return at(instance).last_known_step; }
  const Releases& releases(sim::InstanceId instance) const { return at(instance).releases; }

 private:
  /// One request that was sent, as long as it awaits its first token.
  struct Sent {
    sim::RequestId id;
    std::uint64_t serial = 0;
    sim::Time at{0};
  };
  struct Instance {
    std::vector<Sum> awaiting;  // by class
    std::int64_t awaiting_requests = 0;
    std::int64_t in_flight = 0;
    sim::Time last_known_step = sim::kUnset;
    Releases releases;
    sim::Ring<Sent> sent;  // in order of time; those at the front are still awaited
  };
  struct Request {
    std::uint64_t serial = 0;  // 0: not awaited
    std::int64_t uncached_tokens = 0;
  };

  Instance& at(sim::InstanceId instance) { return instances_[instance.index()]; }
  const Instance& at(sim::InstanceId instance) const { return instances_[instance.index()]; }
  bool is_awaited(const Sent& one) const {
    return requests_known_[one.id.index()].serial == one.serial;
  }
  // True if it was awaited.
  bool answer(sim::RequestId id, Instance& instance);

  const workload::RequestTable& requests_;
  std::vector<Instance> instances_;
  std::vector<Sum> queued_;  // by class
  std::vector<Request> requests_known_;
  std::uint64_t next_serial_ = 1;
};

}  // namespace spillway::signals
