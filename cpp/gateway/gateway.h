#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gateway/admission/policies.h"
#include "gateway/fairness/policies.h"
#include "gateway/limit/policies.h"
#include "gateway/queue/tenant_queues.h"
#include "signals/view.h"
#include "sim/event_queue.h"
#include "sim/field.h"
#include "workload/journal.h"
#include "workload/outcome.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// The queues of one range of priorities.
struct Band {
  std::int64_t priority = -1000;
  Fairness fairness = GlobalFifo{};

  static constexpr std::string_view type_name = "Band";
  static constexpr std::string_view doc =
      "The queues of one range of priorities. Bands are served strictly from the highest priority "
      "down.";
  static constexpr auto fields() {
    using sim::field;
    return std::tuple(
        field("priority", &Band::priority,
              "A request joins the highest band whose priority its class reaches; the lowest band "
              "takes the rest.")
            .range(sim::between(-1000, 1000)),
        field("fairness", &Band::fairness, "Which tenant goes next within the band."));
  }
};

/// If, when and for whom a request is let through.
struct Gateway {
  std::vector<Admission> admission{AlwaysAdmit{}};
  double admission_latency_s = 0;
  std::vector<Band> bands{Band{}};
  Limit limit = Unlimited{};
  double routing_latency_s = 0;

  static constexpr std::string_view type_name = "Gateway";
  static constexpr std::string_view doc =
      "If, when and for whom a request is let through: admission, tenant queues, fairness, "
      "concurrency limit.";
  static constexpr auto fields() {
    using sim::field;
    const auto latency = sim::between(0, sim::kLongestSpan_s);
    return std::tuple(
        field("admission", &Gateway::admission,
              "Chain of admission policies: the first rejection wins. A single policy is a chain "
              "of one."),
        field("admission_latency_s", &Gateway::admission_latency_s,
              "Time from arrival to the admission decision.")
            .unit("s")
            .range(latency),
        field("bands", &Gateway::bands, "Priority bands of the tenant queues; one by default."),
        field("limit", &Gateway::limit, "How many requests may be in flight."),
        field("routing_latency_s", &Gateway::routing_latency_s,
              "Time from dispatch to the routing decision.")
            .unit("s")
            .range(latency));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// The closed set of reasons for which admission rejects.
inline constexpr auto kAdmissionReasons = workload::concat_reasons(std::type_identity<Admission>{});

/// What went through the gateway: counted as it happens, independently of the requests' outcomes.
struct Books {
  std::int64_t attempts = 0;
  std::int64_t admitted = 0;
  std::int64_t rejected = 0;
  std::int64_t dispatched = 0;
  std::int64_t ended = 0;  ///< permits returned
};

/// The pipeline: admission → tenant queue → fairness and limit → dispatch. Keeps the books;
/// policies cannot forget to count.
class Pipeline {
 public:
  Pipeline(const Gateway& config, const workload::RequestTable& requests,
           workload::Journal& journal, sim::EventQueue& events, std::uint64_t seed);

  /// The request has reached the gateway.
  void arrive() { ++books_.attempts; }
  /// Decides on admission. An admitted request joins its tenant's queue, which is then to be
  /// drained at this instant; false: it was rejected.
  bool admit(sim::RequestId id, const signals::View& view, sim::Time now);
  /// Dispatches while the limit permits; routing is due after the routing latency.
  void drain(sim::Time now);
  /// The request has left the system: its permit returns. True if the queues are to be drained at
  /// this instant.
  bool release(sim::RequestId id, sim::Time now);

  const Books& books() const { return books_; }
  std::size_t queued() const;

 private:
  struct Chain {
    std::unique_ptr<AdmissionPolicy> policy;
    std::size_t first_reason;
  };
  struct BandState {
    std::int64_t priority;
    std::unique_ptr<FairnessPolicy> fairness;
    TenantQueues queues;
  };

  BandState& band_of(sim::RequestId id);
  bool dispatch_from(BandState& band, sim::Time now);

  const workload::RequestTable& requests_;
  workload::Journal& journal_;
  sim::EventQueue& events_;
  std::uint64_t seed_;
  sim::Time routing_latency_;
  std::vector<Chain> chain_;
  std::vector<BandState> bands_;  // highest priority first
  std::unique_ptr<LimitPolicy> limit_;
  Books books_;
};

}  // namespace spillway::gateway

extern template struct spillway::sim::Codec<spillway::gateway::Gateway>;
