#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bindings/python_call.h"
#include "gateway/python_policies.h"
#include "instance/python_policies.h"
#include "router/python_policies.h"
#include "sim/value.h"
#include "workload/request_table.h"

namespace spillway::bindings {

/// What makes policies, in a `Factory` of Python or in compiled functions; null: the object is
/// something else.
std::shared_ptr<const sim::Attachment> attachment_in(py::handle object);

/// A policy of a seam that calls the one that is made in Python. Called with the lock.
template <class Policy, class... Context>
std::unique_ptr<Policy> adapt(const Maker& maker, Context... context) = delete;

template <>
std::unique_ptr<gateway::AdmissionPolicy> adapt(const Maker&, const gateway::Scope&);
template <>
std::unique_ptr<gateway::FairnessPolicy> adapt(const Maker&, std::span<const double> weights);
template <>
std::unique_ptr<gateway::LimitPolicy> adapt(const Maker&, std::span<const workload::Tenant>);
template <>
std::unique_ptr<gateway::UsageLimitPolicy> adapt(const Maker&,
                                                 std::span<const std::int64_t> priorities);
template <>
std::unique_ptr<gateway::ControllerPolicy> adapt(const Maker&);
template <>
std::unique_ptr<router::RoutingPolicy> adapt(const Maker&);
template <>
std::unique_ptr<router::Filter> adapt(const Maker&);
template <>
std::unique_ptr<router::Scorer> adapt(const Maker&);
template <>
std::unique_ptr<router::Picker> adapt(const Maker&);
template <>
std::unique_ptr<router::Decider> adapt(const Maker&);
template <>
std::unique_ptr<instance::SchedulerPolicy> adapt(const Maker&, const workload::RequestTable&);

/// Implements the factory of one seam by its `adapt`.
template <class Factory>
class AdapterFactory;
template <class Policy, class... Context>
class AdapterFactory<sim::PolicyFactory<Policy, Context...>>
    : public sim::PolicyFactory<Policy, Context...> {
 public:
  std::unique_ptr<Policy> make(const std::string& parameters, Context... context) const final {
    const InterpreterLock lock;
    return adapt<Policy, Context...>(maker_with(parameters), context...);
  }

 private:
  /// Called with the lock.
  virtual Maker maker_with(const std::string& parameters) const = 0;
};

// What calls get, and what is particular to those of the gateway and of the router.
void bind_calls(py::module_& module);
void bind_gateway_calls(py::module_& module);
void bind_router_calls(py::module_& module);
void bind_compiled_policies(py::module_& module);

}  // namespace spillway::bindings
