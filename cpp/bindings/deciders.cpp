#include "router/deciders/decider.h"

#include <cstdint>
#include <optional>
#include <variant>

#include "bindings/bindings.h"
#include "bindings/settings.h"
#include "cluster/config.h"

namespace spillway::bindings {

void bind_deciders(py::module_& module) {
  module.def(
      "is_local",
      [](const Settings& settings, std::int64_t input_tokens, std::int64_t cached_tokens,
         std::int64_t prefill_tokens, std::int64_t max_batched_tokens, std::int64_t decode_blocks,
         std::optional<std::int64_t> total_blocks) {
        const router::LegsQuestion question{
            input_tokens, cached_tokens, router::LegsQuestion::Decode{decode_blocks, total_blocks},
            router::LegsQuestion::Prefill{prefill_tokens, max_batched_tokens}};
        const auto answer = [&](const auto& config) { return make(config)->is_local(question); };
        return std::visit(answer, settings.as<cluster::Simulation>().disaggregation.decider);
      },
      py::arg("simulation"), py::arg("input_tokens"), py::arg("cached_tokens"),
      py::arg("prefill_tokens") = 0, py::arg("max_batched_tokens") = 0,
      py::arg("decode_blocks") = 0, py::arg("total_blocks") = py::none(),
      "Whether a decider has a prompt computed where its request is continued.");
}

}  // namespace spillway::bindings
