#include "router/deciders/decider.h"

#include <cstdint>
#include <optional>
#include <variant>

#include "bindings/bindings.h"
#include "bindings/settings.h"
#include "cluster/config.h"
#include "sim/error.h"

namespace spillway::bindings {

void bind_deciders(py::module_& module) {
  module.def(
      "is_local",
      [](const Settings& settings, std::int64_t input_tokens, std::int64_t cached_tokens,
         std::int64_t prefill_tokens, std::int64_t max_batched_tokens, std::int64_t decode_blocks,
         std::optional<std::int64_t> total_blocks) {
        using Choice = router::LegsQuestion::Choice;
        const router::LegsQuestion question{
            .prompt_tokens = input_tokens,
            .decode = Choice{.cached_tokens = cached_tokens,
                             .blocks_in_flight = decode_blocks,
                             .num_kv_blocks = total_blocks},
            .prefill = Choice{.pending_tokens = prefill_tokens,
                              .max_num_batched_tokens = max_batched_tokens}};
        const auto answer = [&]<class Config>(const Config& config) -> bool {
          if constexpr (requires { Config::reads_prefill_cache; }) {
            throw sim::UsageError("is_local takes deciders of the core");
          } else {
            return make(config)->is_local(question);
          }
        };
        return std::visit(answer, settings.as<cluster::Simulation>().disaggregation.decider);
      },
      py::arg("simulation"), py::arg("input_tokens"), py::arg("cached_tokens"),
      py::arg("prefill_tokens") = 0, py::arg("max_batched_tokens") = 0,
      py::arg("decode_blocks") = 0, py::arg("total_blocks") = py::none(),
      "Whether a decider of the core has a prompt computed where its request is continued.");
}

}  // namespace spillway::bindings
