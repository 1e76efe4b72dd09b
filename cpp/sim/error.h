#pragma once

#include <cstddef>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::sim {

/// An invalid setting.
struct Violation {
  std::string path;     ///< dotted path of the setting, e.g. `gateway.admission[0].capacity_tokens`
  std::string value;    ///< the given value; empty if there is none to show
  std::string allowed;  ///< what is allowed, as a clause: "must be >= 0"
};

/// The path of a setting, and of an entry of a list.
std::string join_path(const std::string& path, std::string_view name);
std::string index_path(const std::string& path, std::size_t index);

/// Violations in the message of a ConfigError; the others are counted.
inline constexpr std::size_t kShownViolations = 20;

/// The user's settings are invalid. Holds all violations, not only the first.
class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(std::vector<Violation> violations);
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  std::vector<Violation> violations_;
};

/// A call violated the contract of a function.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An internal contradiction: always a defect of Spillway, never of the user's settings.
class InvariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A run handles events at one instant without end: its clock no longer advances.
class LivelockError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Too many runs contain each other: a policy of each starts the next one.
class NestingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The run was stopped from outside (Ctrl-C).
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("the run was interrupted") {}
};

/// Throws InvariantError naming the source line unless `holds`.
void require(bool holds, const std::string& message,
             std::source_location where = std::source_location::current());

}  // namespace spillway::sim
