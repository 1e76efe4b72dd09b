#include "bindings/settings.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/value.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {
struct Simulation;  // only its table is needed
}

namespace spillway::bindings {

namespace {

using sim::FieldInfo;
using sim::StructType;
using sim::TypeInfo;
using sim::Value;

/// A structure's table in Python.
struct Type {
  const TypeInfo* info;

  const StructType& structure() const { return info->structure(); }
};

// ---- all types -----------------------------------------------------------------------------

// The structures in a type, each after its parts.
void collect(const TypeInfo& type, std::vector<const TypeInfo*>& found) {
  if (std::ranges::find(found, &type) != found.end()) return;
  if (const auto* structure = std::get_if<StructType>(&type.of)) {
    for (const FieldInfo& field : structure->fields) collect(*field.type, found);
    found.push_back(&type);
  } else if (const auto* variant = std::get_if<sim::VariantType>(&type.of)) {
    for (const TypeInfo* alternative : variant->alternatives) collect(*alternative, found);
  } else if (const auto* list = std::get_if<sim::ListType>(&type.of)) {
    collect(*list->item, found);
  } else if (const auto* optional = std::get_if<sim::OptionalType>(&type.of)) {
    collect(*optional->content, found);
  }
}

py::tuple all_types() {
  std::vector<const TypeInfo*> found;
  collect(sim::type_of<cluster::Simulation>(), found);
  py::tuple types(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) types[i] = Type{found[i]};
  return types;
}

// ---- values of fields ----------------------------------------------------------------------

// A part of `settings` as a Python object; sequences become tuples, enums text. It shares ownership
// of the whole.
py::object part(const Settings& settings, const TypeInfo& type, const void* object) {
  if (const auto* list = std::get_if<sim::ListType>(&type.of)) {
    py::tuple items(list->size(object));
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i] = part(settings, *list->item, sim::item(*list, object, i));
    }
    return items;
  }
  if (const auto* optional = std::get_if<sim::OptionalType>(&type.of)) {
    const void* held = optional->held(object);
    return held ? part(settings, *optional->content, held) : py::none();
  }
  if (const auto* variant = std::get_if<sim::VariantType>(&type.of)) {
    return part(settings, *variant->alternatives[variant->index(object)], variant->held(object));
  }
  if (std::holds_alternative<StructType>(type.of)) {
    return to_python(Settings{&type, std::shared_ptr<const void>(settings.object, object)});
  }
  return to_python(sim::encode(type, object));
}

py::object field_of(const Settings& settings, const FieldInfo& field) {
  return part(settings, *field.type, sim::member(field, settings.object.get()));
}

const FieldInfo& field_named(const StructType& type, const std::string& name) {
  const auto found = std::ranges::find(type.fields, name, &FieldInfo::name);
  if (found == type.fields.end()) throw py::key_error(name);
  return *found;
}

Settings made(const TypeInfo& type, const Value& value) {
  return {&type, sim::from_value(type, value)};
}

// ---- methods -------------------------------------------------------------------------------

// `Name(field=value, …)`, which is also code that recreates the object. Defaults are omitted.
std::string repr_of(const Settings& settings) {
  if (settings.type == nullptr) return "<settings without values>";  // a debugger may look early
  const StructType& type = settings.structure();
  std::string text(type.name);
  text += '(';
  for (const FieldInfo& field : type.fields) {
    if (field.is_hidden) continue;
    const void* value = sim::member(field, settings.object.get());
    const void* by_default = sim::member(field, type.defaults);
    if (sim::encode(*field.type, value) == sim::encode(*field.type, by_default)) continue;
    if (text.back() != '(') text += ", ";
    text += std::string(field.name) + "=";
    text += py::cast<std::string>(py::repr(field_of(settings, field)));
  }
  return text + ")";
}

// A parameter of a policy written in Python stands within a text: this text, with another value of
// the parameter. Unset: the path leads to none.
std::optional<Value> with_parameter(Value& settings, const std::string& path,
                                    py::handle replacement) {
  constexpr std::string_view inside = ".parameters.";
  const std::size_t at = path.rfind(inside);
  if (at == std::string::npos) return std::nullopt;
  std::vector<sim::Violation> violations;
  const Value* parameters =
      sim::at_path(settings, path.substr(0, at + inside.size() - 1), violations);
  const auto* text = parameters ? parameters->get_if<std::string>() : nullptr;
  if (!text) return std::nullopt;
  const py::object changed =
      py::module_::import("spillway.policies").attr("with_parameter")(*text, path, replacement);
  return Value(py::cast<std::string>(changed));
}

// `settings` with the values at the dotted paths replaced; throws ConfigError for paths that do not
// exist.
Value with_changes(Value settings, const py::dict& changes) {
  constexpr std::string_view preset = "preset";
  std::vector<std::pair<std::string, py::handle>> ordered;
  for (const auto& [key, replacement] : changes) {
    const std::string path = key_of(key);
    auto place = ordered.end();
    if (path.ends_with("." + std::string(preset))) {
      // The preset replaces all values of its structure except those given with it.
      const std::string noun = path.substr(0, path.size() - preset.size());
      place = std::find_if(ordered.begin(), ordered.end(),
                           [&](const auto& change) { return change.first.starts_with(noun); });
    }
    ordered.insert(place, {path, replacement});
  }
  std::vector<sim::Violation> violations;
  for (const auto& [path, replacement] : ordered) {
    if (auto parameters = with_parameter(settings, path, replacement)) {
      const std::string whole = path.substr(0, path.rfind('.'));
      settings = sim::with_path(std::move(settings), whole, std::move(*parameters), violations);
    } else {
      settings = sim::with_path(std::move(settings), path, to_value(replacement, path), violations);
    }
  }
  if (!violations.empty()) throw sim::ConfigError(std::move(violations));
  return settings;
}

// `settings` with fields replaced or, if unknown, added, for the decoder to report.
Value with_fields(Value settings, const py::dict& fields) {
  auto& map = std::get<Value::Map>(settings.data);
  // A preset replaces all values except those given with it.
  if (fields.contains("preset")) map.clear();
  for (const auto& [key, replacement] : fields) {
    const std::string name = key_of(key);
    const auto known = std::find_if(map.begin(), map.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (known == map.end()) {
      map.emplace_back(name, to_value(replacement, name));
    } else {
      known->second = to_value(replacement, name);
    }
  }
  return settings;
}

// Hash of the written form.
Py_ssize_t hash_of(const Value& value) {
  struct Hasher {
    py::object operator()(const Value& v) const {
      if (const auto* list = v.get_if<Value::List>()) {
        py::tuple items(list->size());
        for (std::size_t i = 0; i < list->size(); ++i) items[i] = (*this)((*list)[i]);
        return items;
      }
      if (const auto* map = v.get_if<Value::Map>()) {
        py::tuple items(map->size());
        for (std::size_t i = 0; i < map->size(); ++i) {
          items[i] = py::make_tuple((*map)[i].first, (*this)((*map)[i].second));
        }
        return items;
      }
      return to_python(v);
    }
  };
  return py::hash(Hasher{}(value));
}

py::object is_equal(const Settings& self, const py::object& other) {
  if (!py::isinstance<Settings>(other)) {
    return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  }
  const auto& that = py::cast<const Settings&>(other);
  if (self.type != that.type) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  constexpr auto identity = sim::Purpose::identity;
  return py::bool_(self.object == that.object || self.encoded(identity) == that.encoded(identity));
}

py::dict presets_of(const Type& self) {
  py::dict result;
  for (const auto& [name, value] : self.structure().presets) {
    // The table outlives every object, so no ownership is needed.
    result[py::str(std::string(name))] =
        to_python(Settings{self.info, std::shared_ptr<const void>(std::shared_ptr<void>(), value)});
  }
  return result;
}

void bind_type(py::module_& module) {
  py::class_<Type> type(module, "_Type", "The description of a class of settings.");
  type.def_property_readonly("module", [](const Type& self) { return self.structure().module; });
  type.def_property_readonly("name", [](const Type& self) { return self.structure().name; });
  type.def_property_readonly("kind", [](const Type& self) { return self.structure().kind; });
  type.def_property_readonly("fields", [](const Type& self) {
    py::list names;
    for (const FieldInfo& field : self.structure().fields) {
      if (!field.is_hidden) names.append(py::str(std::string(field.name)));
    }
    return py::tuple(names);
  });
  type.def_property_readonly("has_presets",
                             [](const Type& self) { return !self.structure().presets.empty(); });
  type.def("describe", [](const Type& self) { return to_python(sim::describe(self.structure())); });
  type.def("outline", [](const Type& self) {
    return to_python(sim::describe(self.structure(), sim::Depth::names));
  });
  type.def("presets", &presets_of);
  type.def("__eq__", [](const Type& a, const Type& b) { return a.info == b.info; });
  type.def("__hash__", [](const Type& self) { return std::hash<const void*>{}(self.info); });
}

}  // namespace

const TypeInfo& Settings::info() const {
  if (type == nullptr) throw sim::UsageError("these settings have no values: __init__ has not run");
  return *type;
}

void Settings::refuse(const TypeInfo& wanted) const {
  throw sim::UsageError("a " + std::string(wanted.structure().name) + " is needed, not a " +
                        std::string(structure().name));
}

py::object to_python(Settings settings) {
  const py::object python_class =
      py::module_::import("spillway.config.classes").attr("class_of")(Type{settings.type});
  const py::object instance = python_class.attr("__new__")(python_class);
  py::type::of<Settings>().attr("__init__")(instance, std::move(settings));
  return instance;
}

void bind_settings(py::module_& module) {
  bind_type(module);
  module.def("_types", &all_types, "The types of all settings, each after its parts.");

  py::class_<Settings> settings(module, "_Settings", "A frozen configuration object.");
  settings.def(py::init([](const Settings& other) { return other; }));
  settings.def(py::init(
      [](const Type& type, const py::dict& fields) { return made(*type.info, to_value(fields)); }));
  settings.def("_field", [](const Settings& self, const std::string& name) {
    return field_of(self, field_named(self.structure(), name));
  });
  settings.def("_identity", [](const Settings& self) {
    return to_python(self.encoded(sim::Purpose::identity));
  });
  settings.def("_to_dict", [](const Settings& self) { return to_python(self.encoded()); });
  settings.def_static("_from_dict", [](const Type& type, const py::object& value) {
    return to_python(made(*type.info, to_value(value)));
  });
  settings.def("_with", [](const Settings& self, const py::dict& changes) {
    return to_python(made(self.info(), with_changes(self.encoded(), changes)));
  });
  settings.def("_replace", [](const Settings& self, const py::dict& fields) {
    return to_python(made(self.info(), with_fields(self.encoded(), fields)));
  });
  settings.def("__eq__", &is_equal);
  settings.def("__hash__",
               [](const Settings& self) { return hash_of(self.encoded(sim::Purpose::identity)); });
  settings.def("__repr__", &repr_of);
}

}  // namespace spillway::bindings
