#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/type.h"
#include "sim/value.h"

/// What is done with settings: ordinary functions that walk the tables of their types. `object` is
/// the address of a value of `type`.
namespace spillway::sim {

/// What an encoded value is for: writing it down, or telling whether two are the same. They differ
/// where a structure has `is_part_of_identity`.
enum class Purpose : std::uint8_t { writing, identity };

Value encode(const TypeInfo& type, const void* object, Purpose purpose = Purpose::writing);
/// Settings that `value` leaves out keep the value they have. Reports what has no place or the
/// wrong type.
void decode(const TypeInfo& type, const Value& value, void* object, const std::string& path,
            std::vector<Violation>& out);
/// Reports every number outside its field's range and every broken rule that spans fields.
void validate(const TypeInfo& type, const void* object, const std::string& path,
              std::vector<Violation>& out);
/// What is told of the structures inside another.
enum class Depth : std::uint8_t { all, names };

/// Everything that is known about a structure, as a tree: names, documentation, units, ranges,
/// defaults, alternatives.
Value describe(const StructType& type, Depth depth = Depth::all);

/// A structure from its written form, validated; throws one ConfigError with all violations.
std::shared_ptr<const void> from_value(const TypeInfo& type, const Value& value,
                                       const std::string& path = "");

template <class T>
Value encode(const T& object, Purpose purpose = Purpose::writing) {
  return encode(type_of<T>(), &object, purpose);
}
template <class T>
T from_value(const Value& value) {
  return *static_cast<const T*>(from_value(type_of<T>(), value).get());
}
/// Throws one ConfigError with all violations of an object that was built in C++.
template <class T>
void check(const T& object) {
  std::vector<Violation> violations;
  validate(type_of<T>(), &object, "", violations);
  if (!violations.empty()) throw ConfigError(std::move(violations));
}

}  // namespace spillway::sim
