#include "router/deciders/decider.h"

#include <cstdint>
#include <variant>

#include "bindings/bindings.h"
#include "bindings/settings.h"
#include "cluster/config.h"

namespace spillway::bindings {

void bind_deciders(py::module_& module) {
  module.def(
      "is_local",
      [](const Settings& settings, std::int64_t input_tokens, std::int64_t cached_tokens) {
        const auto answer = [&](const auto& config) {
          return make(config)->is_local({input_tokens, cached_tokens});
        };
        return std::visit(answer, settings.as<cluster::Simulation>().disaggregation.decider);
      },
      py::arg("simulation"), py::arg("input_tokens"), py::arg("cached_tokens"),
      "Whether a decider has a prompt computed where its request is continued.");
}

}  // namespace spillway::bindings
