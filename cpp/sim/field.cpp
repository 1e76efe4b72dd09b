#include "sim/field.h"

#include <algorithm>

namespace spillway::sim {

void report_type(const Value& value, const std::string& path, std::string_view expected,
                 std::vector<Violation>& out) {
  out.push_back({path, to_text(value), "must be " + std::string(expected)});
}

void report_unknown_key(std::string_view key, const Value& value, const std::string& path,
                        const std::vector<std::string_view>& known, std::vector<Violation>& out) {
  out.push_back({join_path(path, key), to_text(value),
                 known.empty() ? "is not a setting; there are none here"
                               : "is not a setting" + did_you_mean(key, known)});
}

const std::string* kind_named(const Value& value, const std::string& path,
                              const std::vector<std::string_view>& known,
                              std::vector<Violation>& out) {
  // A bare word stands for that kind with its defaults.
  const Value* named = value.get_if<std::string>() ? &value : value.find("kind");
  const std::string* kind = named ? named->get_if<std::string>() : nullptr;
  if (kind && std::find(known.begin(), known.end(), *kind) != known.end()) return kind;
  if (kind) {
    out.push_back({join_path(path, "kind"), to_text(*named),
                   "is no known kind" + did_you_mean(*kind, known)});
  } else {
    out.push_back({path, to_text(value), "must name its kind" + did_you_mean("", known)});
  }
  return nullptr;
}

void check_number(double number, const Range& range, std::string_view unit, const std::string& path,
                  std::vector<Violation>& out) {
  if (std::isfinite(number) && range.contains(number)) return;
  std::string allowed = std::isfinite(number) ? "must be" : "must be a finite number";
  if (std::isfinite(range.min)) {
    allowed += (range.min_open ? " > " : " >= ") + to_text(range.min);
  }
  if (std::isfinite(range.max)) {
    allowed += std::isfinite(range.min) ? " and" : "";
    allowed += (range.max_open ? " < " : " <= ") + to_text(range.max);
  }
  if (!unit.empty()) allowed += " (" + std::string(unit) + ")";
  out.push_back({path, to_text(number), allowed});
}

}  // namespace spillway::sim
