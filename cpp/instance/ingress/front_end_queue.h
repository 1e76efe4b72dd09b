#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "instance/front_end.h"
#include "instance/ingress/forwarding.h"
#include "instance/ingress/queue.h"
#include "instance/instance.h"
#include "sim/event_queue.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// A front end with the instance behind it. A request enters twice: when it arrives, and by an
/// event of phase `ingress` when a worker has finished with it. In between it is in transit.
class FrontEndQueue final : public Forwarding {
 public:
  /// `ingress`: the instance behind it, if that has limits; otherwise null.
  FrontEndQueue(const FrontEnd& config, IngressQueue* ingress, sim::InstanceId id,
                const Environment& environment);

  void enqueue(sim::RequestId id, std::size_t rank, sim::Time now) override;
  void cancel(sim::RequestId id, std::size_t rank, workload::Outcome outcome,
              sim::Time now) override;
  void admit_waiting(sim::Time now) override { inner().admit_waiting(now); }
  void expire(sim::Time now) override { inner().expire(now); }
  void close(sim::Time end) override { inner().close(end); }
  const Counters& counters() const override { return inner().counters(); }
  const IngressCounts* ingress() const override { return inner().ingress(); }

 private:
  /// A request that is worked on, or waits for that.
  struct Inside {
    sim::RequestId id;
    std::optional<workload::Outcome> outcome;  ///< if it is withdrawn
  };
  // When a worker will have finished with the request.
  sim::Time serve(sim::RequestId id, sim::Time now);

  FrontEnd config_;
  IngressQueue* ingress_;
  sim::InstanceId id_;
  const workload::RequestTable& requests_;
  sim::EventQueue& events_;
  std::vector<sim::Time> free_at_;  // by worker
  std::vector<Inside> inside_;
  std::int64_t tokens_ = 0;  // of the prompts inside
};

}  // namespace spillway::instance
