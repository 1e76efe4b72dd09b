#include "bindings/python_call.h"

#include <algorithm>

#include "bindings/python_policy.h"

namespace spillway::bindings {

namespace {

py::object error_class() { return py::module_::import("spillway.policies").attr("PolicyError"); }

[[noreturn]] void raise_from(py::error_already_set& cause, const std::string& message) {
  const py::object type = error_class();
  py::raise_from(cause, type.ptr(), message.c_str());
  throw py::error_already_set();
}

[[noreturn]] void fail(const std::string& message) {
  const py::object type = error_class();
  PyErr_SetString(type.ptr(), message.c_str());
  throw py::error_already_set();
}

std::string where(const signals::RequestView* request, Time now) {
  std::string text;
  if (request != nullptr) text += " for request " + std::to_string(request->row());
  if (sim::is_set(now)) text += " at " + sim::to_text(sim::to_seconds(now)) + " s";
  return text;
}

}  // namespace

Held::Held(const Maker& maker, std::vector<py::str> tenants) : name_(maker.name) {
  try {
    policy_ = maker.make();
  } catch (py::error_already_set& error) {
    raise_from(error, name_ + " cannot be made");
  }
  request_ = py::cast(CallRequest(std::move(tenants)), py::return_value_policy::move);
  view_ = py::cast(CallView(), py::return_value_policy::move);
  call_request_ = &py::cast<CallRequest&>(request_);
  call_view_ = &py::cast<CallView&>(view_);
}

py::object Held::method(const char* verb, bool needed) const {
  if (py::hasattr(policy_, verb)) return policy_.attr(verb);
  if (!needed) return py::reinterpret_steal<py::object>(nullptr);
  fail(name_ + " must have a method " + verb + "; see spillway.policies");
}

py::object Held::call(const py::object& method, const char* verb,
                      const signals::RequestView* request, const signals::View* view, Time now,
                      sim::Draws* draws, std::span<PyObject* const> more) {
  std::array<PyObject*, kMostArguments> arguments{};
  std::size_t count = 0;
  if (request != nullptr) {
    call_request_->set(request);
    arguments[count++] = request_.ptr();
  }
  if (view != nullptr) {
    call_view_->set(*view, now, draws);
    arguments[count++] = view_.ptr();
  }
  for (PyObject* argument : more) arguments[count++] = argument;
  PyObject* result = PyObject_Vectorcall(method.ptr(), arguments.data(), count, nullptr);
  if (request != nullptr) call_request_->set(nullptr);
  if (view != nullptr) call_view_->unset();
  if (result != nullptr) return py::reinterpret_steal<py::object>(result);
  py::error_already_set error;
  if (error.matches(PyExc_KeyboardInterrupt) || error.matches(PyExc_SystemExit)) throw error;
  raise_from(error, name_ + "." + verb + " raised " +
                        std::string(py::str(error.type().attr("__name__"))) + where(request, now));
}

void Held::refuse(const char* verb, const py::object& result, const std::string& allowed,
                  const signals::RequestView* request, Time now) const {
  fail(name_ + "." + verb + " returned " + std::string(py::repr(result)) + where(request, now) +
       ": must be " + allowed);
}

void bind_calls(py::module_& module) {
  // In C++ alone can these be made.
  py::class_<CallRequest>(module, "Request", "The request of a call; valid during it only.")
      .def_property_readonly(
          "id", [](const CallRequest& self) { return self.get().row(); },
          "Position in the order of arrival.")
      .def_property_readonly(
          "input_tokens", [](const CallRequest& self) { return self.get().input_tokens(); },
          "Length of the prompt.")
      .def_property_readonly(
          "attributes",
          [](const CallRequest& self) {
            py::dict found;
            const auto all = self.get().attributes();
            for (std::size_t i = 0; i < all.size(); ++i) {
              const std::uint32_t code = self.get().attribute(i);
              found[py::str(all[i].name)] =
                  code == workload::Attribute::kNone ? "" : all[i].values[code];
            }
            return found;
          },
          "Its values in the further columns of the trace, by name; empty: none.")
      .def_property_readonly(
          "model", [](const CallRequest& self) { return self.get().model(); },
          "Model that it names itself, or else its tenant; empty: none.")
      .def_property_readonly(
          "max_tokens", [](const CallRequest& self) { return self.get().max_tokens(); },
          "Maximum of its output that its client states; 0: none.")
      .def_property_readonly(
          "predicted_output_tokens",
          [](const CallRequest& self) { return self.get().predicted_output_tokens(); },
          "Its output length by the simulation's length_prediction; at least 1.")
      .def_property_readonly("tenant", &CallRequest::tenant,
                             "Name of the tenant; in the router and its parts its position.")
      .def_property_readonly(
          "priority", [](const CallRequest& self) { return self.get().priority(); },
          "Priority of its SLO class; higher is more important.")
      .def_property_readonly(
          "arrival_s",
          [](const CallRequest& self) { return sim::to_seconds(self.get().arrival()); },
          "When it arrived, in seconds.")
      .def_property_readonly(
          "prefix_group", [](const CallRequest& self) { return self.get().prefix_group(); },
          "Content of the first shared segment of the prompt; None: none.");
  py::class_<CallView>(
      module, "View",
      "The candidate instances as the gateway sees them; valid during a call only. "
      "Arrays have one value per candidate and are read-only.")
      .def("__len__", &CallView::size)
      .def_property_readonly("now_s", &CallView::now_s, "The instant of the decision, in seconds.")
      .def_property_readonly("rng", &CallView::rng, py::return_value_policy::reference_internal,
                             "Random numbers of this decision alone.")
      .def_property_readonly("has_workers", &CallView::has_workers,
                             "Whether any instance is ready.")
      .def_property_readonly("instances", &CallView::instances,
                             "Number of each candidate in the fleet.")
      .def_property_readonly("waiting", &CallView::waiting, "Requests in the engine's queue.")
      .def_property_readonly("running", &CallView::running, "Requests in the batch.")
      .def_property_readonly("in_flight", &CallView::in_flight,
                             "Requests routed there and not finished: the gateway's own count.")
      .def_property_readonly("kv_utilization", &CallView::kv_utilization,
                             "Used share of the KV blocks, 0 to 1.")
      .def_property_readonly("free_blocks", &CallView::free_blocks, "Free KV blocks.")
      .def_property_readonly("prefill_tokens", &CallView::prefill_tokens,
                             "Prompt tokens not yet computed.")
      .def_property_readonly("age_s", &CallView::age_s,
                             "Age of the metrics in seconds; NaN: never measured.")
      .def_property_readonly("num_kv_blocks", &CallView::num_kv_blocks, "KV blocks in total.")
      .def_property_readonly("max_num_seqs", &CallView::max_num_seqs, "Largest batch.");
}

}  // namespace spillway::bindings
