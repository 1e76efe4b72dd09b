#include "sim/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace spillway::sim {

namespace {

constexpr std::size_t kLongestText = 80;

// The label of a list entry: its `name`, its `kind`, or its first setting if that is text.
const std::string* label_of(const Value& entry) {
  const Value* label = entry.find("name");
  if (!label) label = entry.find("kind");
  if (!label) {
    const auto* map = entry.get_if<Value::Map>();
    if (map && !map->empty()) label = &map->front().second;
  }
  return label ? label->get_if<std::string>() : nullptr;
}

// The entry of `list` that `key` addresses: by its index or its label.
Value* entry(Value::List& list, std::string_view key) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error == std::errc{} && end == key.data() + key.size()) {
    return index < list.size() ? &list[index] : nullptr;
  }
  for (Value& candidate : list) {
    const std::string* label = label_of(candidate);
    if (label && *label == key) return &candidate;
  }
  return nullptr;
}

std::vector<std::string_view> entry_names(const Value::List& list) {
  std::vector<std::string_view> names;
  for (const Value& candidate : list) {
    if (const std::string* label = label_of(candidate)) names.push_back(*label);
  }
  return names;
}

// A new entry in a structure's settings for a key that its written form may have but does not have
// yet: its preset, which replaces all other settings but its kind, or a setting beside a preset.
Value* add_setting(Value::Map& settings, std::string_view key) {
  if (key == "preset") {
    std::erase_if(settings, [](const auto& entry) { return entry.first != "kind"; });
  } else if (std::none_of(settings.begin(), settings.end(),
                          [](const auto& entry) { return entry.first == "preset"; })) {
    return nullptr;
  }
  return &settings.emplace_back(key, Value()).second;
}

// The text with control characters escaped, because it may come from any file.
std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string found;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code != 0x7F) {
      found += c;
      continue;
    }
    found += "\\x";
    found += digits[code >> 4];
    found += digits[code & 0xF];
  }
  return found;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, substitute});
    }
  }
  return row[b.size()];
}

// One step of a path: a key, or an index in brackets.
struct Step {
  std::string_view key;
  bool bracketed;
};

std::optional<std::vector<Step>> split(std::string_view path) {
  std::vector<Step> steps;
  while (!path.empty()) {
    if (path.front() == '[') {
      const std::size_t close = path.find(']');
      if (close == std::string_view::npos || close == 1) return std::nullopt;
      steps.push_back({path.substr(1, close - 1), true});
      path.remove_prefix(close + 1);
      if (path.starts_with('.')) path.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    if (end == 0) return std::nullopt;
    steps.push_back({path.substr(0, end), false});
    path.remove_prefix(end);
    if (path.starts_with('.')) path.remove_prefix(1);
  }
  if (steps.empty()) return std::nullopt;
  return steps;
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  if (const Map* map = get_if<Map>()) {
    for (const auto& [name, value] : *map) {
      if (name == key) return &value;
    }
  }
  return nullptr;
}

bool operator==(const Value& a, const Value& b) {
  if (a.get_if<Value::Shared>() && b.get_if<Value::Shared>()) return true;
  return a.data == b.data;
}

std::string to_text(double number) {
  if (std::isnan(number)) return "nan";  // without a sign
  char buffer[32];
  const bool is_whole = number == std::floor(number) && std::abs(number) < 1e15;
  const auto format = is_whole ? std::chars_format::fixed : std::chars_format::general;
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, number, format);
  return {buffer, result.ptr};
}

std::string to_text(const Value& value) {
  struct Writer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return to_text(number); }
    std::string operator()(const std::string& text) const { return "'" + printable(text) + "'"; }
    std::string operator()(const Value::List& list) const {
      std::string text = "[";
      for (const Value& item : list) text += (text.size() > 1 ? ", " : "") + to_text(item);
      return text + "]";
    }
    std::string operator()(const Value::Map& map) const {
      std::string text = "{";
      for (const auto& [key, item] : map) {
        text += (text.size() > 1 ? ", " : "") + printable(key) + ": " + to_text(item);
      }
      return text + "}";
    }
    std::string operator()(const Value::Shared&) const { return "<data>"; }
  };
  std::string text = std::visit(Writer{}, value.data);
  if (text.size() > kLongestText) {
    std::size_t end = kLongestText;
    while ((static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u)
      --end;  // keep characters whole
    text = text.substr(0, end) + "…";
  }
  return text;
}

Value with_path(Value root, std::string_view path, Value replacement,
                std::vector<Violation>& violations) {
  if (Value* place = at_path(root, path, violations)) *place = std::move(replacement);
  return root;
}

Value* at_path(Value& root, std::string_view path, std::vector<Violation>& violations) {
  const auto steps = split(path);
  if (!steps) {
    violations.push_back(
        {std::string(path), "", "not a dotted path such as gateway.admission[0].capacity_tokens"});
    return nullptr;
  }
  Value* place = &root;
  for (const Step& step : *steps) {
    const bool is_last = &step == &steps->back();
    Value* next = nullptr;
    std::vector<std::string_view> names;
    // The index of a list of one may be omitted.
    auto* list = std::get_if<Value::List>(&place->data);
    if (list && !step.bracketed && list->size() == 1) {
      place = &list->front();
      list = nullptr;
    }
    if (list) {
      next = entry(*list, step.key);
      names = entry_names(*list);
    } else if (auto* map = std::get_if<Value::Map>(&place->data)) {
      for (auto& [key, value] : *map) {
        names.push_back(key);
        if (key == step.key) next = &value;
      }
      if (!next && is_last) next = add_setting(*map, step.key);
    }
    if (!next) {
      violations.push_back({std::string(path), "",
                            (list ? "unknown entry '" : "unknown setting '") +
                                std::string(step.key) + "'" +
                                did_you_mean(step.key, names, violations)});
      return nullptr;
    }
    place = next;
  }
  return place;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates) {
  std::string_view nearest;
  std::size_t smallest = std::max<std::size_t>(2, name.size() / 2) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t lengths_apart =
        std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size());
    if (lengths_apart >= smallest) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < smallest) {
      smallest = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) return "; did you mean '" + std::string(nearest) + "'?";
  if (candidates.empty()) return "";
  constexpr std::size_t kShown = 100;
  std::string text = "; one of ";
  for (std::size_t i = 0; i < std::min(candidates.size(), kShown); ++i) {
    if (i > 0) text += ", ";
    text += candidates[i];
  }
  if (candidates.size() > kShown) text += ", … (" + std::to_string(candidates.size()) + " in all)";
  return text;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates,
                         const std::vector<Violation>& earlier) {
  return earlier.size() < kShownViolations ? did_you_mean(name, candidates) : "";
}

}  // namespace spillway::sim
