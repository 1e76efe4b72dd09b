// Policies of a user in C functions. They are called without the interpreter's lock.
#include <cstdint>
#include <memory>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/python_policy.h"
#include "gateway/admission/compiled_admission.h"
#include "router/deciders/compiled_decider.h"
#include "router/scorers/compiled_scorer.h"
#include "signals/compiled_policy.h"
#include "signals/policy_records.h"

namespace spillway::bindings {

namespace {

/// Keeps an object of Python until the last owner ends, which may hold no lock.
std::shared_ptr<void> owner_of(py::object object) {
  const auto kept = std::make_shared<py::object>(std::move(object));
  return {kept.get(), [kept](void*) { release(*kept); }};
}

template <class Function>
Function* at(std::uintptr_t address) {
  return reinterpret_cast<Function*>(address);
}

using signals::InstanceRecord;
using signals::LegsRecord;
using signals::RequestRecord;

// The records are described on first use, because a description imports NumPy.
bool describe_records() {
  static const bool is_done = [] {
    PYBIND11_NUMPY_DTYPE(RequestRecord, id, input_tokens, tenant, slo_class, priority, arrival_s,
                         uniform, max_tokens, predicted_output_tokens, model, model_name,
                         num_attributes, attributes);
    PYBIND11_NUMPY_DTYPE(InstanceRecord, instance, waiting, running, in_flight, free_blocks,
                         prefill_tokens, num_kv_blocks, max_num_seqs, kv_utilization, age_s);
    PYBIND11_NUMPY_DTYPE(LegsRecord, prompt_tokens, prompt_blocks, decode_instance,
                         decode_cached_tokens, decode_pending_tokens, decode_blocks_in_flight,
                         decode_max_num_batched_tokens, decode_num_kv_blocks, prefill_instance,
                         prefill_cached_tokens, prefill_pending_tokens, prefill_blocks_in_flight,
                         prefill_max_num_batched_tokens, prefill_num_kv_blocks);
    return true;
  }();
  return is_done;
}

template <class Record>
py::dtype dtype() {
  describe_records();
  return py::dtype::of<Record>();
}

}  // namespace

void bind_compiled_policies(py::module_& module) {
  using gateway::AdmissionFunctions;
  using router::DeciderFunctions;
  using router::ScorerFunctions;
  module.attr("policy_abi") = signals::kPolicyAbi;
  module.def("request_dtype", &dtype<RequestRecord>, "The NumPy type of `spillway_request`.");
  module.def("instance_dtype", &dtype<InstanceRecord>, "The NumPy type of `spillway_instance`.");
  module.def("legs_dtype", &dtype<LegsRecord>, "The NumPy type of `spillway_legs`.");
  py::class_<AdmissionFunctions, std::shared_ptr<AdmissionFunctions>>(
      module, "AdmissionFunctions", "The functions of a compiled admission policy.")
      .def(py::init([](std::uintptr_t decide, std::uintptr_t commit, std::uintptr_t dispatched,
                       std::uintptr_t first_token, std::uintptr_t finished, py::object owner) {
             const auto made = std::make_shared<AdmissionFunctions>();
             made->decide = at<signals::DecideFunction>(decide);
             made->commit = at<signals::NotifyFunction>(commit);
             made->dispatched = at<signals::NotifyFunction>(dispatched);
             made->first_token = at<signals::NotifyFunction>(first_token);
             made->finished = at<signals::NotifyFunction>(finished);
             made->owner = owner_of(std::move(owner));
             return made;
           }),
           py::arg("decide"), py::arg("commit"), py::arg("dispatched"), py::arg("first_token"),
           py::arg("finished"), py::arg("owner"));
  py::class_<ScorerFunctions, std::shared_ptr<ScorerFunctions>>(
      module, "ScorerFunctions", "The function of a compiled scorer.")
      .def(py::init([](std::uintptr_t score, py::object owner) {
             const auto made = std::make_shared<ScorerFunctions>();
             made->score = at<signals::ScoreFunction>(score);
             made->owner = owner_of(std::move(owner));
             return made;
           }),
           py::arg("score"), py::arg("owner"));
  py::class_<DeciderFunctions, std::shared_ptr<DeciderFunctions>>(
      module, "DeciderFunctions", "The function of a compiled decider.")
      .def(py::init([](std::uintptr_t is_local, py::object owner) {
             const auto made = std::make_shared<DeciderFunctions>();
             made->is_local = at<signals::IsLocalFunction>(is_local);
             made->owner = owner_of(std::move(owner));
             return made;
           }),
           py::arg("is_local"), py::arg("owner"));
}

}  // namespace spillway::bindings
