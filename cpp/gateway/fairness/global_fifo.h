#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sim/schema/enum.h"

namespace spillway::gateway {

class FairnessPolicy;

/// Which of the heads of the tenants' queues goes first.
enum class HeadOrder : std::uint8_t { entry, ordering };

/// One queue for all tenants: the request that has waited longest goes next, except that none waits
/// behind another's own limit. Source of `ordering`: `global-strict-fairness-policy` of
/// llm-d-router
/// @ ebab687.
struct GlobalFifo {
  HeadOrder order = HeadOrder::entry;

  static constexpr std::string_view kind = "global_fifo", type_name = "GlobalFifo";
  static constexpr std::string_view doc =
      "One queue for all tenants: the request that has waited longest goes next. Only a request "
      "that waits for a limit of its own tenant or class is overtaken: with such limits, each "
      "tenant has a queue of its own.";
  static void fields(auto field) {
    field("order", &GlobalFifo::order,
          "Which head of the tenants' queues goes first. entry: the one that has waited longest; "
          "ordering: the first one by the ordering of the queues, e.g. the earliest deadline "
          "(llm-d's global-strict-fairness-policy). They are the same with fcfs.");
  }
};

std::unique_ptr<FairnessPolicy> make(const GlobalFifo& config, std::span<const double> weights);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::HeadOrder> {
  static constexpr std::array<std::string_view, 2> names{"entry", "ordering"};
};
