#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class LimitPolicy;

/// What a change of the budget does to permits that are out.
enum class Resize : std::uint8_t { corrected, verbatim };

/// A budget of workers × cap_per_worker requests in flight.
struct WorkerBudget {
  std::int64_t cap_per_worker = 64;
  std::optional<std::int64_t> workers;
  Resize resize = Resize::corrected;

  static constexpr std::string_view kind = "worker_budget", type_name = "WorkerBudget";
  static constexpr std::string_view doc =
      "At most workers × cap_per_worker requests between dispatch and last token, whoever's they "
      "are (vllm-on-eks @ 0c78403). A controller moves cap_per_worker.";
  static void fields(auto field) {
    field("cap_per_worker", &WorkerBudget::cap_per_worker, "Permits per worker, at first; 0: none.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024);
    field("workers", &WorkerBudget::workers,
          "Number of workers; absent: as many as there are instances that are ready.")
        .unit("instances")
        .range(sim::between(0, 1e6));
    field("resize", &WorkerBudget::resize,
          "corrected: never more in flight than the budget, but for what was when it shrank; "
          "verbatim: a smaller budget only swallows permits that return, so it does not bind "
          "while permits are idle, and a later growth comes on top.");
  }
};

std::unique_ptr<LimitPolicy> make(const WorkerBudget& config);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Resize> {
  static constexpr std::array<std::string_view, 2> names{"corrected", "verbatim"};
};
