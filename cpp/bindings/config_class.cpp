#include "bindings/config_class.h"

#include <algorithm>

namespace spillway::bindings {

std::string repr_of(std::string_view name,
                    const std::vector<std::pair<std::string, py::object>>& fields) {
  std::string text(name);
  text += '(';
  for (const auto& [field, value] : fields) {
    if (text.back() != '(') text += ", ";
    text += field + "=" + py::cast<std::string>(py::repr(value));
  }
  return text + ")";
}

sim::Value with_changes(sim::Value settings, const py::dict& changes) {
  constexpr std::string_view preset = "preset";
  std::vector<std::pair<std::string, py::handle>> ordered;
  for (const auto& [key, replacement] : changes) {
    const std::string path = key_of(key);
    auto place = ordered.end();
    if (path.ends_with("." + std::string(preset))) {
      // It replaces every value of its noun but those given with it.
      const std::string noun = path.substr(0, path.size() - preset.size());
      place = std::find_if(ordered.begin(), ordered.end(),
                           [&](const auto& change) { return change.first.starts_with(noun); });
    }
    ordered.insert(place, {path, replacement});
  }
  std::vector<sim::Violation> violations;
  for (const auto& [path, replacement] : ordered) {
    settings = sim::with_path(std::move(settings), path, to_value(replacement, path), violations);
  }
  if (!violations.empty()) throw sim::ConfigError(std::move(violations));
  return settings;
}

sim::Value with_fields(sim::Value settings, const py::kwargs& fields) {
  auto& map = std::get<sim::Value::Map>(settings.data);
  // A preset replaces every value but those given with it.
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

Py_ssize_t hash_of(const sim::Value& value) {
  struct Hasher {
    py::object operator()(const sim::Value& v) const {
      if (const auto* list = v.get_if<sim::Value::List>()) {
        py::tuple items(list->size());
        for (std::size_t i = 0; i < list->size(); ++i) items[i] = (*this)((*list)[i]);
        return items;
      }
      if (const auto* map = v.get_if<sim::Value::Map>()) {
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

}  // namespace spillway::bindings
