#include "sim/error.h"

#include <algorithm>
#include <span>

namespace spillway::sim {

namespace {

std::string join(const std::vector<Violation>& violations) {
  std::string text;
  for (const auto& violation :
       std::span(violations).first(std::min(violations.size(), kShownViolations))) {
    if (!text.empty()) text += '\n';
    text += violation.path.empty() ? "settings" : violation.path;
    if (!violation.value.empty()) text += " = " + violation.value;
    text += ": " + violation.allowed;
  }
  if (violations.size() > kShownViolations) {
    text += "\n… and " + std::to_string(violations.size() - kShownViolations) + " more, " +
            std::to_string(violations.size()) + " in all";
  }
  return text;
}

}  // namespace

std::string join_path(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}
std::string index_path(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

ConfigError::ConfigError(std::vector<Violation> violations)
    : std::runtime_error(join(violations)), violations_(std::move(violations)) {}

void require(bool holds, const std::string& message, std::source_location where) {
  if (holds) return;
  throw InvariantError(message + " (" + where.file_name() + ":" + std::to_string(where.line()) +
                       "). This is a defect of Spillway; please report it.");
}

}  // namespace spillway::sim
