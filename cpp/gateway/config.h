#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "gateway/admission/policies.h"
#include "gateway/controller/guard_config.h"
#include "gateway/controller/policies.h"
#include "gateway/eviction_config.h"
#include "gateway/fairness/cost.h"
#include "gateway/fairness/policies.h"
#include "gateway/limit/policies.h"
#include "gateway/queue/queue.h"
#include "gateway/usage_limit/policies.h"
#include "signals/needs.h"
#include "signals/sensor_config.h"
#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"
#include "workload/tenants.h"

namespace spillway::gateway {

/// The queues for one range of priorities.
struct Band {
  std::int64_t priority = -1000;
  double ceiling = 1;
  std::optional<std::int64_t> max_requests;
  Fairness fairness = GlobalFifo{};
  Queue queue;

  static constexpr std::string_view type_name = "Band";
  static constexpr std::string_view doc =
      "The queues for one range of priorities. Bands are served strictly from the highest priority "
      "down.";
  static void fields(auto field) {
    field("priority", &Band::priority,
          "A request joins the highest band whose priority its class reaches; the lowest band "
          "takes the rest.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("ceiling", &Band::ceiling,
          "Saturation of the fleet from which the band waits, if there is a saturation limit and "
          "the usage limit is static.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0.5, 1)
        .runtime();
    field("max_requests", &Band::max_requests,
          "Maximum number of requests of all tenants that wait in the band; 0: every request is "
          "rejected, because each one passes through the queue; unset: unlimited.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 5000)
        .runtime();
    field("fairness", &Band::fairness, "Choice of the next tenant within the band.");
    field("queue", &Band::queue, "The tenants' queues: bounds, time-outs, order.");
  }
};

/// How requests are distributed over the replicas of a gateway.
enum class Split : std::uint8_t { round_robin, tenant_hash, random };

/// How many requests a drain of the queues may dispatch.
enum class Dispatch : std::uint8_t { all, one_per_attempt, one_per_cycle };

/// The gateway: which requests are admitted, and when they are dispatched.
struct Gateway {
  std::vector<Admission> admission{AlwaysAdmit{}};
  double admission_latency_s = 0;
  std::vector<Band> bands{Band{}};
  std::optional<std::int64_t> max_queued;
  bool queue_shedding = false;
  std::optional<double> retry_after_s;
  double drain_latency_s = 0;
  Dispatch dispatch = Dispatch::all;
  double attempt_period_s = 0.001;
  double expiry_period_s = 0;
  std::vector<Limit> limit{Unlimited{}};
  UsageLimit usage_limit = StaticCeilings{};
  Eviction eviction;
  Controller controller = StaticLimit{};
  Guard guard;
  signals::Sensor sensor;
  double routing_latency_s = 0;
  double decision_latency_s = 0;
  std::int64_t replicas = 1;
  Split split = Split::round_robin;

  static constexpr std::string_view type_name = "Gateway";
  static constexpr std::string_view doc =
      "The gateway, which decides whether and when a request is dispatched: admission, tenant "
      "queues, fairness, concurrency limit and its controller.";
  static void fields(auto field) {
    const auto latency = sim::between(0, sim::kLongestSpan_s);
    field("admission", &Gateway::admission,
          "Chain of admission policies; the first rejection wins. A single policy is a chain of "
          "one.");
    field("admission_latency_s", &Gateway::admission_latency_s,
          "Time from arrival to the admission decision.")
        .unit("s")
        .range(latency);
    field("bands", &Gateway::bands, "Priority bands of the tenant queues; one by default.");
    field("max_queued", &Gateway::max_queued,
          "Maximum number of requests that wait in all bands; 0: every request is rejected; unset: "
          "unlimited.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 5000)
        .runtime();
    field("queue_shedding", &Gateway::queue_shedding,
          "Whether a request that exceeds max_queued replaces the least important sheddable one "
          "(priority < 0), the newest of equals, if it is more important.");
    field(
        "retry_after_s", &Gateway::retry_after_s,
        "Retry-After of requests that the gateway rejects, drops or lets expire, for clients that "
        "obey it, unless the policy of admission states another one; unset: none.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.1, 60);
    field("drain_latency_s", &Gateway::drain_latency_s,
          "Time until the dispatcher notices that a request has joined or a permit was released. "
          "With 0, it notices before the next arrival of the same instant.")
        .unit("s")
        .range(latency);
    field(
        "dispatch", &Gateway::dispatch,
        "How many requests are dispatched at a time. all: as many as the limits permit, whenever a "
        "request joins or a permit is released; one_per_attempt: one when a request joins, and one "
        "every attempt_period_s while any waits, none when a permit is released (llm-d's endpoint "
        "picker), so the dispatch rate exceeds the arrival rate by at most 1 / attempt_period_s; "
        "one_per_cycle: one when a request arrives, even if its queue is full, and one at every "
        "whole multiple of attempt_period_s. A cycle goes through the bands from the highest down, "
        "to the first one that is closed or dispatches a request. Cycles continue while no request "
        "waits, as usage limits and fairness policies that count them can see (llm-d since 0.9).");
    field("attempt_period_s", &Gateway::attempt_period_s,
          "Time between two periodic dispatch attempts: those of one_per_attempt, and those for "
          "requests that a saturation limit holds.")
        .unit("s")
        .range(sim::between(1e-5, sim::kLongestSpan_s))
        .log_search(1e-4, 0.1);
    field(
        "expiry_period_s", &Gateway::expiry_period_s,
        "Time between two searches for requests that have waited too long. Until the next one, an "
        "expired request keeps its place and may still be dispatched; a search precedes the "
        "dispatches of its instant. 0: a request expires at the end of its time (llm-d since 0.9 "
        "searches once a second).")
        .unit("s")
        .range(sim::between(0, 1e6));
    field("limit", &Gateway::limit,
          "Limits on the requests in flight; all of them must agree. A single limit is a list of "
          "one.");
    field("usage_limit", &Gateway::usage_limit,
          "Saturation from which each band waits, if there is a saturation limit; with several, "
          "the highest saturation counts.");
    field("eviction", &Gateway::eviction,
          "Eviction of requests in flight in favor of requests that a saturation limit holds.");
    field("controller", &Gateway::controller,
          "Controller of the limit: of the first one in the list that can be moved.");
    field("guard", &Gateway::guard, "Bounds on the moves of the controller.");
    field("sensor", &Gateway::sensor, "Measurement for the controller.");
    field("routing_latency_s", &Gateway::routing_latency_s,
          "Time from dispatch to the routing decision.")
        .unit("s")
        .range(latency);
    field("decision_latency_s", &Gateway::decision_latency_s,
          "Time that the routing decision takes: the router reads its counts at the start, and the "
          "request counts and is sent at the end, so that decisions that overlap do not see each "
          "other (llm-d-router#1598).")
        .unit("s")
        .range(latency)
        .log_search(0.001, 0.1);
    field("replicas", &Gateway::replicas,
          "Number of gateways in front of the same fleet, each with its own queues, limits, "
          "controller and records.")
        .unit("gateways")
        .range(sim::between(1, 1000));
    field("split", &Gateway::split,
          "Replica that gets a request: round_robin in order of arrival, tenant_hash or random.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// The closed set of reasons of admission.
inline constexpr auto kAdmissionReasons = workload::concat_reasons(std::type_identity<Admission>{});

/// The needs of its active policies.
signals::Needs needs_of(const Gateway& config);
/// Whether the policy is notified of the further life of its requests.
bool observes(const Admission& policy);
/// The cost that a fairness policy charges; null: none.
const Cost* cost_of(const Fairness& fairness);
/// Whether any limit reads the state of the fleet.
bool has_saturation_limit(const Gateway& config);
/// How long a queued request waits at least before it times out; kForever: none does.
sim::Time shortest_timeout(const Gateway& config, std::span<const workload::SloClass> classes);
/// Whether cycles without waiting requests have an effect on later ones.
bool counts_idle_cycles(const Gateway& config);
/// Whether a controller moves the limit.
bool is_controlled(const Gateway& config);
/// That the controller has no limit to move; `path`: of the gateway.
sim::Violation nothing_to_move(const Gateway& config, const std::string& path);
/// Whether the gateway dispatches every admitted request at the instant of its arrival, in order of
/// arrival, if a worker is ready: no latency, no limit, no bound on the queues, and nothing that
/// measures, drops or counts the requests in them.
bool never_holds(const Gateway& config, std::span<const workload::Tenant> tenants);
/// Whether a tenant at its own limit may stop others, as far as that can be seen without asking
/// policies in Python or reading instance metrics: a band waits for the tenant whose turn it is.
bool may_stop_others(const Gateway& config);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Split> {
  static constexpr std::array<std::string_view, 3> names{"round_robin", "tenant_hash", "random"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::Dispatch> {
  static constexpr std::array<std::string_view, 3> names{"all", "one_per_attempt", "one_per_cycle"};
};
