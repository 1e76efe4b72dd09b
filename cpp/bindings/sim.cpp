#include <Eigen/Core>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "sim/error.h"
#include "sim/event_queue.h"
#include "sim/exclusive.h"
#include "sim/math.h"
#include "sim/rng.h"

namespace spillway::bindings {

namespace {

// The one table that maps errors of the core to Python exceptions.
void translate_errors(py::module_& module) {
  static PyObject* config_error = nullptr;
  static PyObject* usage_error = nullptr;
  static PyObject* invariant_error = nullptr;
  static PyObject* livelock_error = nullptr;
  const auto make = [&](const char* name, const char* doc, PyObject* base) {
    PyObject* type =
        PyErr_NewExceptionWithDoc((std::string("spillway.") + name).c_str(), doc, base, nullptr);
    module.add_object(name, py::reinterpret_borrow<py::object>(type));
    return type;
  };
  config_error = make("ConfigError",
                      "Invalid settings. `violations` lists all of them as (path, value, allowed).",
                      PyExc_ValueError);
  usage_error =
      make("UsageError", "A call violated the contract of a function.", PyExc_RuntimeError);
  invariant_error =
      make("InvariantError", "An internal contradiction in Spillway; please report it.",
           PyExc_RuntimeError);
  livelock_error =
      make("LivelockError",
           "A run handles events at one instant without end, or requests in prefill and decode "
           "pools wait "
           "for each other's memory. The message names the repeated events, or such requests.",
           PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) std::rethrow_exception(pending);
    } catch (const sim::ConfigError& error) {
      py::list violations;
      for (const auto& violation : error.violations()) {
        violations.append(py::make_tuple(violation.path, violation.value, violation.allowed));
      }
      const py::object exception = py::reinterpret_borrow<py::object>(config_error)(error.what());
      exception.attr("violations") = py::tuple(violations);
      PyErr_SetObject(config_error, exception.ptr());
    } catch (const sim::UsageError& error) {
      PyErr_SetString(usage_error, error.what());
    } catch (const sim::InvariantError& error) {
      PyErr_SetString(invariant_error, error.what());
    } catch (const sim::LivelockError& error) {
      PyErr_SetString(livelock_error, error.what());
    } catch (const sim::NestingError& error) {
      PyErr_SetString(PyExc_RecursionError, error.what());
    } catch (const sim::Interrupted&) {
      // The signal handler has already set the exception (usually KeyboardInterrupt).
      if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
    }
  });
}

/// A call of objects that Python code implements, as the context of a `with` statement.
class Calls {
 public:
  Calls(std::string name, std::vector<std::shared_ptr<sim::Exclusive>> objects)
      : name_(std::move(name)), objects_(std::move(objects)) {}

  void enter() {
    try {
      for (const auto& object : objects_) {
        inside_.push_back(std::make_unique<sim::Exclusive::Call>(*object, name_));
      }
    } catch (...) {
      inside_.clear();
      throw;
    }
  }
  void exit() { inside_.clear(); }

 private:
  std::string name_;
  std::vector<std::shared_ptr<sim::Exclusive>> objects_;
  std::vector<std::unique_ptr<sim::Exclusive::Call>> inside_;
};

void bind_calls_of_objects(py::module_& module) {
  using sim::Exclusive;
  py::class_<Exclusive, std::shared_ptr<Exclusive>>(
      module, "Exclusive", "Lets one call at a time into an object; a copy knows of no call.")
      .def(py::init<std::string, std::string>(), py::arg("what"), py::arg("readable"))
      .def(py::pickle(
          [](const Exclusive& self) { return py::make_tuple(self.what(), self.readable()); },
          [](const py::tuple& state) {
            return std::make_shared<Exclusive>(state[0].cast<std::string>(),
                                               state[1].cast<std::string>());
          }));
  // Python looks for signals between two of its own instructions, so Ctrl-C never leaves an object
  // half entered.
  py::class_<Calls>(module, "Calls", "One call of several objects, for a `with` statement.")
      .def(py::init<std::string, std::vector<std::shared_ptr<Exclusive>>>(), py::arg("name"),
           py::arg("objects"))
      .def("__enter__", &Calls::enter)
      .def("__exit__", [](Calls& self, const py::args&) { self.exit(); });
}

}  // namespace

void bind_sim(py::module_& module) {
  translate_errors(module);
  bind_calls_of_objects(module);
  module.def("philox4x64", &sim::philox4x64, py::arg("counter"), py::arg("key"),
             "The block of four 64-bit numbers at `counter` under `key` (Philox4x64-10).");

  module.def("exp", &sim::exp, py::arg("x"), "e**x, the same bits everywhere; see cpp/sim/math.h.");
  module.def("exp2", &sim::exp2, py::arg("x"), "2**x.");
  module.def("expm1", &sim::expm1, py::arg("x"), "e**x - 1.");
  module.def("log", &sim::log, py::arg("x"), "Natural logarithm.");
  module.def("log1p", &sim::log1p, py::arg("x"), "Natural logarithm of 1 + x.");
  module.def("pow", &sim::pow, py::arg("x"), py::arg("y"), "x**y of x >= 0.");
  module.def("sin", &sim::sin, py::arg("x"), "Sine of |x| <= 1.");
  module.def("gamma", &sim::gamma, py::arg("x"), "Gamma function of 1 <= x <= 22.");
  module.def("normal_probability", &sim::normal_probability, py::arg("z"),
             "Distribution function of the standard normal distribution.");
  module.def("decimal_exponent", &sim::decimal_exponent, py::arg("x"),
             "Number of decimal digits before the point, minus 1.");

  py::class_<sim::Draws>(module, "Draws",
                         "The random numbers of one entity in one stream, for tests.")
      .def(py::init([](std::uint64_t seed, std::uint64_t stream, std::uint64_t entity,
                       std::uint64_t sub_entity) {
             return sim::Draws(seed, static_cast<sim::Stream>(stream), entity, sub_entity);
           }),
           py::kw_only(), py::arg("seed"), py::arg("stream"), py::arg("entity") = 0,
           py::arg("sub_entity") = 0)
      .def("bits", &sim::Draws::bits)
      .def("uniform", &sim::Draws::uniform)
      .def(
          "below",
          [](sim::Draws& self, std::uint64_t n) {
            if (n == 0) throw sim::UsageError("below(n) needs n > 0");
            return self.below(n);
          },
          py::arg("n"))
      .def("exponential", &sim::Draws::exponential)
      .def("normal", &sim::Draws::normal)
      .def(
          "gamma",
          [](sim::Draws& self, double shape) {
            if (!(shape > 0)) throw sim::UsageError("gamma(shape) needs shape > 0");
            return self.gamma(shape);
          },
          py::arg("shape"));

  py::dict info;
  info["version"] = SPILLWAY_VERSION;
  info["compiler"] = __VERSION__;
  info["eigen"] = std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) +
                  "." + std::to_string(EIGEN_MINOR_VERSION);
  info["pybind11"] =
      std::to_string(PYBIND11_VERSION_MAJOR) + "." + std::to_string(PYBIND11_VERSION_MINOR);
#ifdef NDEBUG
  info["build_type"] = "release";
#else
  info["build_type"] = "debug";
#endif
  module.attr("build_info") = info;
}

}  // namespace spillway::bindings
