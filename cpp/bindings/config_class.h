#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/casters.h"
#include "bindings/value.h"
#include "sim/field.h"

/// Turns a configuration struct into a frozen Python class from its field descriptors. The typed
/// signature, the dataclass protocol and the docstring are added in Python (`spillway._config`)
/// from what `_describe` tells.
namespace spillway::bindings {

/// A field's value as a Python object; sequences become tuples, enums text.
template <class T>
py::object field_to_python(const T& value) {
  if constexpr (sim::is_vector<T>::value) {
    py::tuple result(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) result[i] = field_to_python(value[i]);
    return result;
  } else if constexpr (sim::is_optional<T>::value) {
    return value ? field_to_python(*value) : py::none();
  } else if constexpr (sim::is_variant<T>::value) {
    return std::visit([](const auto& alternative) { return py::cast(alternative); }, value);
  } else if constexpr (std::is_enum_v<T>) {
    return py::str(std::string(sim::EnumNames<T>::names[static_cast<std::size_t>(value)]));
  } else {
    return py::cast(value);
  }
}

template <class T>
using Getters = std::vector<std::pair<std::string, std::function<py::object(const T&)>>>;

template <class T>
Getters<T> getters() {
  Getters<T> result;
  sim::for_each_field<T>([&](const auto& f) {
    if (f.is_hidden) return;
    result.emplace_back(std::string(f.name), [member = f.member](const T& self) {
      return field_to_python(self.*member);
    });
  });
  return result;
}

/// `Name(field=value, …)`, which is also the code that makes the object again.
std::string repr_of(std::string_view name,
                    const std::vector<std::pair<std::string, py::object>>& fields);
/// `settings` with the values at the dotted paths replaced; throws ConfigError for paths that do
/// not exist.
sim::Value with_changes(sim::Value settings, const py::dict& changes);
/// `settings` with fields replaced or, if unknown, added, for the decoder to complain about.
sim::Value with_fields(sim::Value settings, const py::kwargs& fields);
/// Hash of the written form.
Py_ssize_t hash_of(const sim::Value& value);

template <sim::ConfigStruct T>
py::class_<T> bind_config(py::module_& module) {
  py::class_<T> type(module, std::string(T::type_name).c_str(), std::string(T::doc).c_str());
  type.def(py::init([](const py::kwargs& fields) { return sim::from_value<T>(to_value(fields)); }));
  for (auto& [name, get] : getters<T>()) type.def_property_readonly(name.c_str(), get);
  if constexpr (sim::Kinded<T>) type.attr("kind") = py::str(std::string(T::kind));

  type.def("_identity",
           [](const T& self) { return to_python(sim::encode(self, sim::Purpose::identity)); });
  type.def("_to_value", [](const T& self) { return sim::encode(self); });
  type.def(
      "to_dict", [](const T& self) { return to_python(sim::encode(self)); },
      "The settings as plain dicts, lists and numbers, with `kind` tags.");
  type.def_static(
      "from_dict",
      [](const py::object& settings) { return sim::from_value<T>(to_value(settings)); },
      py::arg("settings"),
      "Builds one from plain dicts, lists and numbers; raises one ConfigError with all "
      "violations.");
  type.def(
      "with_",
      [](const T& self, const py::dict& changes) {
        return sim::from_value<T>(with_changes(sim::encode(self), changes));
      },
      py::arg("changes"),
      "A copy in which the settings at the given dotted paths are replaced, e.g. "
      "{'tenants[gold].weight': 2}.");
  type.def(
      "replace",
      [](const T& self, const py::kwargs& fields) {
        return sim::from_value<T>(with_fields(sim::encode(self), fields));
      },
      "A copy in which the given fields are replaced.");
  type.def("__eq__", [](const T& self, const py::object& other) -> py::object {
    if (!py::isinstance<T>(other)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
    const auto identity = sim::Purpose::identity;
    return py::bool_(sim::encode(self, identity) ==
                     sim::encode(py::cast<const T&>(other), identity));
  });
  type.def("__hash__",
           [](const T& self) { return hash_of(sim::encode(self, sim::Purpose::identity)); });
  type.def("__repr__", [](const T& self) {
    // Defaults are left out.
    const sim::Value value = sim::encode(self);
    const sim::Value defaults = sim::encode(T{});
    std::vector<std::pair<std::string, py::object>> fields;
    for (const auto& [name, get] : getters<T>()) {
      if (!(*value.find(name) == *defaults.find(name))) fields.emplace_back(name, get(self));
    }
    return repr_of(T::type_name, fields);
  });
  type.def("__setattr__", [](const T&, const std::string& name, const py::object&) {
    throw py::attribute_error("'" + std::string(T::type_name) +
                              "' is frozen; make a changed copy with .replace(" + name + "=…)");
  });
  type.def("__reduce__", [](const py::object& self) {
    py::dict fields;
    for (const auto& [name, get] : getters<T>()) {
      fields[py::str(name)] = get(py::cast<const T&>(self));
    }
    return py::make_tuple(py::module_::import("spillway._config").attr("rebuild"),
                          py::make_tuple(py::type::of(self), fields));
  });
  type.def_static("_describe", [] { return to_python(sim::describe<T>()); });
  if constexpr (requires { T::presets(); }) {
    type.def_static(
        "preset",
        [](const std::string& name) {
          return sim::from_value<T>(sim::Value::Map{{"preset", sim::Value(name)}});
        },
        py::arg("name"), "The published values called `name`; see `presets()`.");
    type.def_static(
        "presets",
        [] {
          py::dict result;
          for (const auto& [name, value] : T::presets()) result[py::str(std::string(name))] = value;
          return result;
        },
        "All published values by name.");
  }
  return type;
}

/// Binds every alternative of a variant.
template <class Variant, std::size_t... I>
void bind_alternatives(py::module_& module, std::index_sequence<I...>) {
  (bind_config<std::variant_alternative_t<I, Variant>>(module), ...);
}
template <class Variant>
void bind_policies(py::module_& module) {
  bind_alternatives<Variant>(module, std::make_index_sequence<std::variant_size_v<Variant>>{});
}

}  // namespace spillway::bindings
