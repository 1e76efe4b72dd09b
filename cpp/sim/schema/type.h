#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/error.h"
#include "sim/schema/field.h"
#include "sim/value.h"

/// The tables behind `fields`: the description of a type of setting, and functions that read and
/// change a value of it through its address. Ordinary functions walk them, see `codec.h`.
namespace spillway::sim {

struct FlagType {};     ///< bool
struct IntegerType {};  ///< std::int64_t
struct RealType {};     ///< double
struct TextType {};     ///< std::string
struct PlainType {};    ///< Value: a mapping that has a meaning of its own, such as paths to values

/// An enum of one byte.
struct ChoiceType {
  std::vector<std::string_view> names;
};

struct StructType {
  struct Reason {
    std::string_view name;
    std::string_view category;  ///< in the common vocabulary
    std::string_view doc;
    std::vector<std::string_view> decided_by;  ///< paths of settings
  };

  std::string_view module;  ///< its namespace: the folder of the core and the module in Python
  std::string_view name;
  std::string_view kind;  ///< empty: not an alternative of a variant
  std::string_view doc;
  std::vector<FieldInfo> fields;
  std::vector<Reason> reasons;
  std::vector<std::pair<std::string_view, const void*>> presets;

  /// Appends a field.
  FieldInfo& add(std::string_view field, std::string_view meaning, std::size_t offset,
                 const TypeInfo& type);

  const void* defaults;
  void* (*make)();  ///< creates one with the defaults
  void (*destroy)(void* object);
  /// Assigns a preset. Null if there are none.
  void (*assign)(void* object, const void* preset);
  /// Null if no rule spans fields.
  void (*check_rules)(const void* object, const std::string& path, std::vector<Violation>& out);
  /// Null if all fields are part of the identity.
  bool (*is_part_of_identity)(const void* object, std::string_view field);
};

struct VariantType {
  std::vector<const TypeInfo*> alternatives;  ///< structures
  std::size_t (*index)(const void* object);
  const void* (*held)(const void* object);
  /// Emplaces the default of an alternative.
  void* (*emplace)(void* object, std::size_t index);
};

struct ListType {
  const TypeInfo* item;
  std::size_t item_size;  ///< in bytes
  std::size_t (*size)(const void* object);
  const void* (*first)(const void* object);
  /// Fills it with `size` defaults; returns the first.
  void* (*reset)(void* object, std::size_t size);
};

struct OptionalType {
  const TypeInfo* content;
  const void* (*held)(const void* object);  ///< null: empty
  void (*clear)(void* object);
  /// Sets it to a default that `fill` has modified, unless `fill` returns false.
  void (*set)(void* object, const std::function<bool(void*)>& fill);
};

struct AttachmentType {
  Value::Shared (*get)(const void* object);
  /// False if it is of another type.
  bool (*set)(void* object, const Value::Shared& attachment);
};

struct TypeInfo {
  std::variant<FlagType, IntegerType, RealType, TextType, PlainType, ChoiceType, StructType,
               VariantType, ListType, OptionalType, AttachmentType>
      of;

  const StructType& structure() const { return std::get<StructType>(of); }
};

/// The address of a field of a structure, and of an entry of a list.
inline const void* member(const FieldInfo& field, const void* object) {
  return static_cast<const char*>(object) + field.offset;
}
inline const void* item(const ListType& list, const void* object, std::size_t i) {
  return static_cast<const char*>(list.first(object)) + i * list.item_size;
}

/// The table of a type. A `schema.cpp` instantiates, with `tables.h`, the tables that other sources
/// need; nested tables are created on the way.
template <class T>
const TypeInfo& type_of();

}  // namespace spillway::sim
