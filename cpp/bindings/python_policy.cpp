// Policies written in Python: what makes those of a run. The adapters, one per seam of the core,
// are in python_gateway.cpp and python_router.cpp.
#include "bindings/python_policy.h"

#include <memory>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/settings.h"
#include "gateway/admission/compiled_admission.h"
#include "router/deciders/compiled_decider.h"
#include "router/scorers/compiled_scorer.h"
#include "sim/value.h"

namespace spillway::bindings {

namespace {

/// An imported class or function, which makes a policy of any seam when it gets its parameters.
class Factory final : public AdapterFactory<gateway::AdmissionFactory>,
                      public AdapterFactory<gateway::FairnessFactory>,
                      public AdapterFactory<gateway::LimitFactory>,
                      public AdapterFactory<gateway::UsageLimitFactory>,
                      public AdapterFactory<gateway::ControllerFactory>,
                      public AdapterFactory<router::RouterFactory>,
                      public AdapterFactory<router::FilterFactory>,
                      public AdapterFactory<router::ScorerFactory>,
                      public AdapterFactory<router::PickerFactory>,
                      public AdapterFactory<router::DeciderFactory>,
                      public AdapterFactory<instance::SchedulerFactory> {
 public:
  Factory(py::object target, std::string name)
      : target_(std::move(target)), name_(std::move(name)) {}
  Factory(const Factory&) = delete;
  Factory& operator=(const Factory&) = delete;
  ~Factory() override { release(target_); }

  const py::object& target() const { return target_; }

 private:
  Maker maker_with(const std::string& parameters) const override {
    const py::object bound = py::module_::import("spillway.policies").attr("bound");
    return {bound(target_, parameters), name_};
  }

  py::object target_;
  std::string name_;
};

}  // namespace

std::shared_ptr<const sim::Attachment> attachment_in(py::handle object) {
  if (py::isinstance<Factory>(object)) return py::cast<std::shared_ptr<Factory>>(object);
  if (py::isinstance<gateway::AdmissionFunctions>(object)) {
    return py::cast<std::shared_ptr<gateway::AdmissionFunctions>>(object);
  }
  if (py::isinstance<router::ScorerFunctions>(object)) {
    return py::cast<std::shared_ptr<router::ScorerFunctions>>(object);
  }
  if (py::isinstance<router::DeciderFunctions>(object)) {
    return py::cast<std::shared_ptr<router::DeciderFunctions>>(object);
  }
  return nullptr;
}

void bind_policies(py::module_& module) {
  py::class_<Factory, std::shared_ptr<Factory>>(
      module, "Factory", "An imported class or function that makes the policies of runs.")
      .def(py::init<py::object, std::string>(), py::arg("target"), py::arg("name"))
      .def_property_readonly("target", &Factory::target);
  module.def(
      "target_of",
      [](const Settings& settings) -> py::object {
        const sim::Value fields = settings.encoded();
        const sim::Value* found = fields.find("factory");
        const auto* shared = found ? found->get_if<sim::Value::Shared>() : nullptr;
        const auto factory = shared ? std::dynamic_pointer_cast<const Factory>(*shared) : nullptr;
        return factory ? factory->target() : py::none();
      },
      py::arg("settings"), "The class or function of a policy; None: it has not been imported.");
  bind_calls(module);
  bind_gateway_calls(module);
  bind_router_calls(module);
  bind_compiled_policies(module);
}

}  // namespace spillway::bindings
