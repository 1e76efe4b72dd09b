#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// The signal of overload.
enum class DagorSignal : std::uint8_t { queue_delay, ttft };
/// The definition of a user, whose requests share a level.
enum class DagorUser : std::uint8_t { tenant, request };

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::DagorSignal> {
  static constexpr std::array<std::string_view, 2> names{"queue_delay", "ttft"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::DagorUser> {
  static constexpr std::array<std::string_view, 2> names{"tenant", "request"};
};

namespace spillway::gateway {

/// Admits down to a level of importance that follows a delay.
struct Dagor {
  DagorSignal signal = DagorSignal::queue_delay;
  double threshold_s = 0.02;
  double window_s = 1;
  std::int64_t window_requests = 2000;
  double decrease = 0.05;
  double increase = 0.01;
  DagorUser user = DagorUser::tenant;
  std::int64_t user_levels = 128;
  double rotation_s = 3600;

  static constexpr std::string_view kind = "dagor", type_name = "Dagor";
  static constexpr std::string_view doc =
      "Admits requests down to a level of importance (DAGOR of WeChat). A level is the rank of the "
      "class by priority, then a number that a hash assigns to the user for a time. At the end of "
      "each window the level is set by the number of arrivals of each level in it: in overload it "
      "admits at most (1 − decrease) times the admitted requests, otherwise (1 + increase) times "
      "as many. Overload is a mean delay above threshold_s.";
  static void fields(auto field) {
    const auto span = sim::positive_up_to(sim::kLongestSpan_s);
    field("signal", &Dagor::signal,
          "queue_delay: from arrival to dispatch, known at dispatch; ttft: from arrival to the "
          "first token, known at the first token.");
    field("threshold_s", &Dagor::threshold_s, "Mean delay above which there is overload.")
        .unit("s")
        .range(span)
        .log_search(0.005, 5)
        .runtime();
    field("window_s", &Dagor::window_s, "Maximum length of a window.")
        .unit("s")
        .range(span)
        .log_search(0.1, 10);
    field("window_requests", &Dagor::window_requests, "Maximum number of arrivals in a window.")
        .unit("requests")
        .range(sim::between(1, 1e9));
    field("decrease", &Dagor::decrease, "Relative decrease of admissions in overload.")
        .dimensionless()
        .range(sim::between(0, 1))
        .search(0.01, 0.3)
        .runtime();
    field("increase", &Dagor::increase, "Relative increase of admissions otherwise.")
        .dimensionless()
        .range(sim::between(0, 1000))
        .search(0.002, 0.1)
        .runtime();
    field("user", &Dagor::user,
          "tenant: all requests of a tenant share a level, and therefore a decision; request: each "
          "request has its own level.");
    field("user_levels", &Dagor::user_levels, "Number of user levels within a class.")
        .unit("levels")
        .range(sim::between(1, 4096));
    field("rotation_s", &Dagor::rotation_s, "Time after which users get new levels.")
        .unit("s")
        .range(span);
  }
  static constexpr bool observes = true;
  static constexpr std::array reasons{
      workload::Reason{"dagor", workload::categories::kSaturated,
                       "the request's level of importance is below the admitted level"}};
};

std::unique_ptr<AdmissionPolicy> make(const Dagor& config, const Scope& scope);

}  // namespace spillway::gateway
