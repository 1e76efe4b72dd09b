#include "bindings/value.h"

#include <limits>

#include "bindings/python_policy.h"
#include "bindings/settings.h"
#include "sim/error.h"

namespace spillway::bindings {

using sim::Value;

namespace {

constexpr int kDeepest = 64;

Value value_of(py::handle object, const std::string& path, int depth);

std::string repr_of(py::handle object) { return py::cast<std::string>(py::repr(object)); }

[[noreturn]] void refuse(const std::string& path, std::string value, std::string allowed) {
  throw sim::ConfigError(
      {{path.empty() ? "settings" : path, std::move(value), std::move(allowed)}});
}

std::string text_of(py::handle text, const std::string& path) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) {
    PyErr_Clear();
    refuse(path, repr_of(text), "must be valid Unicode");
  }
  return {data, static_cast<std::size_t>(size)};
}

Value::Map map_of(py::handle mapping, const std::string& path, int depth) {
  Value::Map map;
  for (const py::handle item : mapping.attr("items")()) {
    const auto pair = py::cast<py::tuple>(item);
    const std::string key = key_of(pair[0], path);
    map.emplace_back(key, value_of(pair[1], sim::join_path(path, key), depth));
  }
  return map;
}

Value::List list_of(py::handle sequence, const std::string& path, int depth) {
  Value::List list;
  for (const py::handle item : sequence) {
    list.push_back(value_of(item, sim::index_path(path, list.size()), depth));
  }
  return list;
}

// Integers beyond 64 bits become reals, those beyond the range of a real infinite: no field allows
// them.
Value number_of(py::handle whole) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(whole.ptr(), &overflow);
  if (overflow == 0) return std::int64_t{number};
  const double real = PyLong_AsDouble(whole.ptr());
  if (PyErr_Occurred() == nullptr) return real;
  PyErr_Clear();
  return overflow * std::numeric_limits<double>::infinity();
}

Value value_of(py::handle object, const std::string& path, int depth) {
  if (depth > kDeepest) refuse("", "", "must not be nested more than 64 deep");
  if (object.is_none()) return {};
  if (py::isinstance<Settings>(object)) return py::cast<const Settings&>(object).encoded();
  if (py::isinstance<py::bool_>(object)) return py::cast<bool>(object);
  if (py::isinstance<py::str>(object)) return text_of(object, path);
  if (py::isinstance<py::float_>(object)) return py::cast<double>(object);
  if (py::isinstance<py::int_>(object)) return number_of(object);
  if (const auto held = attachment_in(object)) return Value::Shared(held);
  if (!py::isinstance<py::type>(object)) {
    // What stands for settings, such as a server of the catalog.
    if (py::hasattr(object, "__settings__")) {
      return value_of(object.attr("__settings__")(), path, depth + 1);
    }
    if (py::hasattr(object, "items")) return map_of(object, path, depth + 1);
    // NumPy scalars; arrays turn into lists.
    if (py::hasattr(object, "tolist")) return value_of(object.attr("tolist")(), path, depth + 1);
    if (py::hasattr(object, "__iter__")) return list_of(object, path, depth + 1);
  }
  if (PyCallable_Check(object.ptr()) != 0) {
    // A policy written in Python: its class, or a function that makes one.
    const py::object known =
        py::module_::import("spillway.policies").attr("described")(object, path);
    if (!known.is_none()) return value_of(known, path, depth + 1);
  }
  refuse(path, repr_of(object), "must be a number, text, true, false, null, a list or a mapping");
}

}  // namespace

std::string key_of(py::handle object, const std::string& path) {
  if (!py::isinstance<py::str>(object)) {
    refuse(path, "", "a key must be text, not " + repr_of(object));
  }
  return text_of(object, path);
}

Value to_value(py::handle object, const std::string& path) { return value_of(object, path, 0); }

py::object to_python(const Value& value) {
  struct Converter {
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(bool flag) const { return py::bool_(flag); }
    py::object operator()(std::int64_t number) const { return py::int_(number); }
    py::object operator()(double number) const { return py::float_(number); }
    py::object operator()(const std::string& text) const { return py::str(text); }
    py::object operator()(const Value::List& list) const {
      py::list result;
      for (const Value& item : list) result.append(to_python(item));
      return result;
    }
    py::object operator()(const Value::Map& map) const {
      py::dict result;
      for (const auto& [key, item] : map) {
        if (!item.get_if<Value::Shared>()) result[py::str(key)] = to_python(item);
      }
      return result;
    }
    py::object operator()(const Value::Shared&) const { return py::none(); }
  };
  return std::visit(Converter{}, value.data);
}

}  // namespace spillway::bindings
