#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::fleet {

/// The instance that has a fault.
template <class Fault>
void field_of_instance(auto field) {
  field("instance", &Fault::instance, "The instance, by its position in the fleet, from 0.")
      .dimensionless()
      .range(sim::between(0, 100000));
}

/// And for how long.
template <class Fault>
void fields_of_fault(auto field, std::string_view doc_of_span) {
  field_of_instance<Fault>(field);
  field("for_s", &Fault::for_s, doc_of_span)
      .unit("s")
      .range(sim::positive_up_to(sim::kLongestSpan_s));
}

/// The process of an instance ends.
struct Crash {
  std::int64_t instance = 0;
  std::optional<double> for_s;

  static constexpr std::string_view kind = "crash", type_name = "Crash";
  static constexpr std::string_view doc =
      "The instance loses its requests, which fail as instance_lost at this instant, and its KV "
      "memory. It is started again after for_s, serves fleet.startup_s later, and has an empty "
      "cache then. An instance that has crashed cannot crash, hang or slow down before it has been "
      "started again.";
  static void fields(auto field) {
    fields_of_fault<Crash>(field,
                           "Time until the instance is started again, before fleet.startup_s; "
                           "unset: it never is.");
  }
};

/// An instance stands still.
struct Hang {
  std::int64_t instance = 0;
  std::optional<double> for_s;

  static constexpr std::string_view kind = "hang", type_name = "Hang";
  static constexpr std::string_view doc =
      "The instance stands still: its step under way does not end, requests that reach it wait, "
      "and nothing returns. After for_s it goes on where it was. If the hang is detected before "
      "(fleet.health.detected_after_s), the instance is killed then: it crashes, and is started "
      "again at once. A client that leaves meanwhile ends its request at that instant.";
  static void fields(auto field) {
    fields_of_fault<Hang>(field, "Time until it goes on; unset: it never does by itself.");
  }
};

/// An instance is slower than it should be.
struct Slowdown {
  std::int64_t instance = 0;
  std::optional<double> for_s;
  double factor = 2;

  static constexpr std::string_view kind = "slowdown", type_name = "Slowdown";
  static constexpr std::string_view doc =
      "The steps that begin from now on take factor times as long, until for_s has passed, another "
      "slowdown of the instance replaces this one, or it is started again. No health check detects "
      "it.";
  static void fields(auto field) {
    fields_of_fault<Slowdown>(field, "Time until it has its speed again; unset: it never has.");
    field("factor", &Slowdown::factor, "What the durations of steps are multiplied by.")
        .dimensionless()
        .range(sim::between(0.01, 1000));
  }
};

/// The content of an instance's KV memory is lost.
struct KvLoss {
  std::int64_t instance = 0;
  bool cached_only = false;

  static constexpr std::string_view kind = "kv_loss", type_name = "KvLoss";
  static constexpr std::string_view doc =
      "The instance goes on without the content of its KV memory, from the end of its step under "
      "way on, or at once if there is none: the requests of its batch are preempted and compute "
      "their tokens again, and no prefix is found. An instance that is down or loading has nothing "
      "to lose, and no health check detects the loss.";
  static void fields(auto field) {
    field_of_instance<KvLoss>(field);
    field("cached_only", &KvLoss::cached_only,
          "Whether only cached blocks that no request holds are lost, as when the prefix cache is "
          "reset.");
  }
};

/// The process of a replica of the gateway ends.
struct GatewayCrash {
  std::int64_t gateway = 0;
  std::optional<double> for_s;

  static constexpr std::string_view kind = "gateway_crash", type_name = "GatewayCrash";
  static constexpr std::string_view doc =
      "The replica of the gateway ends. The requests in its queues fail as gateway_lost at this "
      "instant; so do those that it has sent on, as their answers pass through it: their "
      "instances notice that as they notice clients that leave. Later arrivals go to the other "
      "replicas, or fail at once while there is none. After for_s the replica takes requests "
      "again, in its initial state: no queue, permit, measurement or record is left. A replica "
      "that is down cannot crash.";
  static void fields(auto field) {
    field("gateway", &GatewayCrash::gateway,
          "The replica, by its position among gateway.replicas, from 0.")
        .dimensionless()
        .range(sim::between(0, 1000));
    field("for_s", &GatewayCrash::for_s,
          "Time until the replica takes requests again; unset: it never does.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
  }
};

using Fault = std::variant<Crash, Hang, Slowdown, KvLoss, GatewayCrash>;
inline bool is_of_gateway(const Fault& fault) {
  return std::holds_alternative<GatewayCrash>(fault);
}
/// The number of the instance, or of the replica of the gateway, that has the fault.
inline std::int64_t number_of(const Fault& fault) {
  return std::visit(
      [](const auto& any) {
        if constexpr (requires { any.instance; }) {
          return any.instance;
        } else {
          return any.gateway;
        }
      },
      fault);
}

/// Instances fail at random.
struct Breakdowns {
  double mttf_s = 86400;
  double mttr_s = 60;
  bool hangs = false;

  static constexpr std::string_view type_name = "Breakdowns";
  static constexpr std::string_view doc =
      "Every instance fails at random, independently of its load and of the others: it works for "
      "an exponentially distributed time, fails, and is started again after another one.";
  static void fields(auto field) {
    field("mttf_s", &Breakdowns::mttf_s,
          "Mean time to failure, from the start of the run, and from when it serves again.")
        .unit("s")
        .range(sim::between(0.001, sim::kLongestSpan_s));
    field("mttr_s", &Breakdowns::mttr_s,
          "Mean time to repair: for_s of the fault. A crash takes fleet.startup_s more.")
        .unit("s")
        .range(sim::between(0.001, sim::kLongestSpan_s));
    field("hangs", &Breakdowns::hangs, "Whether a failure is a hang; otherwise it is a crash.");
  }
  bool draws() const { return true; }
};

/// What happens to a request that reaches an instance which has crashed.
enum class AtDeadInstance : std::uint8_t { refused, swallowed };

/// How the gateway notices that an instance has failed.
struct Health {
  double detected_after_s = 0;
  AtDeadInstance undetected = AtDeadInstance::refused;

  static constexpr std::string_view type_name = "Health";
  static constexpr std::string_view doc =
      "How the gateway notices that an instance has crashed or hangs. Until then it takes the "
      "instance for ready, with the metrics that it reported last, and may send requests there.";
  static void fields(auto field) {
    field("detected_after_s", &Health::detected_after_s,
          "Time from a crash or hang until the instance is no longer ready to the gateway, e.g. "
          "period × failure threshold of its health checks. An instance that serves again before "
          "is not missed.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("undetected", &Health::undetected,
          "What happens to a request that reaches a crashed instance. refused: it fails at once, "
          "as where a process has ended; swallowed: nothing returns until the crash is detected or "
          "the instance is started again, as where a machine is lost, and it fails then. It fails "
          "at once after the detection.");
  }
  static constexpr std::array reasons{
      workload::Reason{"instance_lost",
                       workload::categories::kInstanceLost,
                       "the instance crashed, or had crashed when the request reached it",
                       {"changes[].faults", "fleet.breakdowns"}},
      workload::Reason{"gateway_lost",
                       workload::categories::kGatewayLost,
                       "the replica of the gateway crashed, or none was there to take the request",
                       {"changes[].faults", "gateway.replicas"}}};
};

}  // namespace spillway::fleet

template <>
struct spillway::sim::EnumNames<spillway::fleet::AtDeadInstance> {
  static constexpr std::array<std::string_view, 2> names{"refused", "swallowed"};
};
