#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/type.h"
#include "sim/value.h"

/// Operations on settings: ordinary functions that walk the tables of their types. `object` is the
/// address of a value of `type`.
namespace spillway::sim {

/// The purpose of an encoded value: to be written, or to be compared. They differ if a structure
/// has `is_part_of_identity`.
enum class Purpose : std::uint8_t { writing, identity };

Value encode(const TypeInfo& type, const void* object, Purpose purpose = Purpose::writing);
/// Settings that `value` omits keep their values. Reports unknown keys and wrong types.
void decode(const TypeInfo& type, const Value& value, void* object, const std::string& path,
            std::vector<Violation>& out);
/// Reports every number outside its field's range and every violated rule that spans fields.
void validate(const TypeInfo& type, const void* object, const std::string& path,
              std::vector<Violation>& out);
/// A field in which two values differ, and where it is.
struct Difference {
  std::string path;
  const FieldInfo* field = nullptr;  ///< null: the values themselves differ
};
/// The innermost fields in which two values of a type differ. Lists of different lengths, and
/// alternatives of different kinds, differ as a whole.
std::vector<Difference> differences(const TypeInfo& type, const void* a, const void* b);

/// How much to describe of nested structures.
enum class Depth : std::uint8_t { all, names };

/// The description of a structure as a tree: names, documentation, units, ranges, defaults,
/// alternatives.
Value describe(const StructType& type, Depth depth = Depth::all);

/// Decodes and validates a structure; throws one ConfigError with all violations.
std::shared_ptr<const void> from_value(const TypeInfo& type, const Value& value,
                                       const std::string& path = "");

template <class T>
Value encode(const T& object, Purpose purpose = Purpose::writing) {
  return encode(type_of<T>(), &object, purpose);
}
/// Whether two settings are written differently.
template <class T>
bool differ(const T& a, const T& b) {
  return !differences(type_of<T>(), &a, &b).empty();
}
template <class T>
T from_value(const Value& value) {
  return *static_cast<const T*>(from_value(type_of<T>(), value).get());
}
/// Validates an object built in C++; throws one ConfigError with all violations.
template <class T>
void check(const T& object) {
  std::vector<Violation> violations;
  validate(type_of<T>(), &object, "", violations);
  if (!violations.empty()) throw ConfigError(std::move(violations));
}

}  // namespace spillway::sim
