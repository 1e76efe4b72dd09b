#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fleet/faults.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "sim/value.h"
#include "workload/submission.h"

namespace spillway::cluster {

/// What is done to a run from outside at an instant: settings change, requests enter, instances
/// fail.
struct Change {
  double at_s = 0;
  sim::Value set{sim::Value::Map{}};
  std::vector<workload::Submission> submit;
  std::vector<std::int64_t> cancel;
  std::vector<workload::HandOff> hand_off;
  std::vector<fleet::Fault> faults;

  static constexpr std::string_view type_name = "Change";
  static constexpr std::string_view doc =
      "Settings that change during a run, as an operator changes those of a running deployment, "
      "and requests from outside the workload, which may be withdrawn. Only settings that are "
      "marked as changeable can "
      "change. Instances may fail, too.";
  static void fields(auto field) {
    field("at_s", &Change::at_s,
          "Time of the change, before the ticks, the arrivals and the dispatches of that instant; "
          "requests enter after the other arrivals.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field(
        "set", &Change::set,
        "New values by path, e.g. {gateway.limit[0].max_in_flight: 12, tenants[gold].weight: 3}.");
    field("submit", &Change::submit,
          "Requests that arrive at this time, e.g. {tenant: gold, input_tokens: 100}.");
    field("cancel", &Change::cancel,
          "Requests of this list of changes whose clients withdraw them at this time, by their "
          "position among all that it submits, from 0. Each has arrived before.")
        .dimensionless()
        .range(sim::at_least(0));
    field("hand_off", &Change::hand_off,
          "Requests with prefill_only whose decode legs are sent at this time, e.g. {request: 3, "
          "instance: 1}.");
    field("faults", &Change::faults,
          "Instances and replicas of the gateway that fail at this time, after the ticks of that "
          "instant and before its arrivals and dispatches, e.g. {kind: crash, instance: 3, for_s: "
          "200}.");
  }
};

}  // namespace spillway::cluster
