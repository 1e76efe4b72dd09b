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

/// How a change of the budget affects permits in use.
enum class Resize : std::uint8_t { corrected, verbatim };

/// A budget of workers × cap_per_worker requests in flight.
struct WorkerBudget {
  std::int64_t cap_per_worker = 64;
  std::optional<std::int64_t> workers;
  Resize resize = Resize::corrected;

  static constexpr std::string_view kind = "worker_budget", type_name = "WorkerBudget";
  static constexpr std::string_view doc =
      "At most workers × cap_per_worker requests between dispatch and last token, on any workers "
      "(vllm-on-eks @ 0c78403). A controller moves cap_per_worker.";
  static void fields(auto field) {
    field("cap_per_worker", &WorkerBudget::cap_per_worker,
          "Initial number of permits per worker; 0: none.")
        .unit("requests")
        .range(sim::between(0, 1e9))
        .log_search(1, 1024)
        .runtime();
    field("workers", &WorkerBudget::workers,
          "Number of workers; unset: the number of ready instances.")
        .unit("instances")
        .range(sim::between(0, 1e6));
    field("resize", &WorkerBudget::resize,
          "corrected: no dispatch while the budget is used up; requests in flight when it shrank "
          "finish. verbatim: a smaller budget only absorbs released permits, so it does not bind "
          "while permits are idle, and later growth is added on top.");
  }
};

std::unique_ptr<LimitPolicy> make(const WorkerBudget& config);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::Resize> {
  static constexpr std::array<std::string_view, 2> names{"corrected", "verbatim"};
};
