#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// The requests that a gateway has admitted and that have no first token yet, and the responses of
/// the instances: the gateway's own record, always fresh. Kept only if a policy reads it.
///
/// Uncached tokens are the tokens of a prompt that were not sent to the instance before, as far as
/// the gateway remembers; for a request that is still in a queue, the minimum over the instances.
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
  /// Departures of requests from an instance.
  struct Releases {
    sim::Time last = sim::kUnset;  ///< in this busy period
    double mean_gap_s = 0;         ///< recent mean; 0: unknown
  };

  Outstanding(const workload::RequestTable& requests, std::size_t num_instances);

  // ---- life of a request -------------------------------------------------------------------

  /// The request has joined a queue.
  void admitted(sim::RequestId id, std::int64_t uncached_tokens);
  /// The request has left the queue without being dispatched.
  void left_queue(sim::RequestId id);
  /// The request has left the queue for an instance.
  void sent(sim::RequestId id, sim::InstanceId instance, std::int64_t uncached_tokens,
            sim::Time now);
  void first_token(sim::RequestId id, sim::InstanceId instance, sim::Time now);
  /// The request has left the instance, with or without a first token.
  void ended(sim::RequestId id, sim::InstanceId instance, sim::Time now);

  // ---- counts ------------------------------------------------------------------------------

  /// Requests of a class that are admitted and not yet sent.
  const Sum& queued(std::size_t slo_class) const { return queued_[slo_class]; }
  /// Requests of a class that were sent there and have no first token.
  const Sum& awaiting(sim::InstanceId instance, std::size_t slo_class) const {
    return at(instance).awaiting[slo_class];
  }
  /// The same of all classes.
  Sum awaiting(sim::InstanceId instance) const;
  /// Requests that await a first token and were sent later than `since`.
  Sum sent_after(sim::InstanceId instance, sim::Time since) const;
  /// Requests sent there and not finished.
  std::int64_t in_flight(sim::InstanceId instance) const { return at(instance).in_flight; }
  /// Requests in flight there that have a first token.
  std::int64_t decoding(sim::InstanceId instance) const {
    return at(instance).in_flight - at(instance).awaiting_requests;
  }
  /// Time of the last event that shows the end or start of a step there: a first token, the end of
  /// a request, or the first request sent to the idle instance. kUnset: never.
  sim::Time last_known_step(sim::InstanceId instance) const { return at(instance).last_known_step; }
  const Releases& releases(sim::InstanceId instance) const { return at(instance).releases; }

 private:
  /// A request that was sent and awaits its first token.
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
    sim::Ring<Sent> sent;  // in order of time; the front one still awaits its first token
  };
  struct Request {
    std::uint64_t serial = 0;  // 0: awaits no first token
    std::int64_t uncached_tokens = 0;
  };

  Instance& at(sim::InstanceId instance) { return instances_[instance.index()]; }
  const Instance& at(sim::InstanceId instance) const { return instances_[instance.index()]; }
  bool is_awaited(const Sent& request) const {
    return requests_known_[request.id.index()].serial == request.serial;
  }
  // True if it awaited its first token.
  bool answer(sim::RequestId id, Instance& instance);

  const workload::RequestTable& requests_;
  std::vector<Instance> instances_;
  std::vector<Sum> queued_;  // by class
  std::vector<Request> requests_known_;
  std::uint64_t next_serial_ = 1;
};

}  // namespace spillway::signals
