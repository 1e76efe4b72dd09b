#pragma once

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "sim/schema/enum.h"
#include "sim/schema/traits.h"
#include "sim/schema/type.h"

/// Creates the tables of types from their `fields`: the only templates of the schema. Included by a
/// `schema.cpp`, which instantiates `template const TypeInfo& type_of<T>();`.
namespace spillway::sim::detail {

template <class T>
const T& as(const void* object) {
  return *static_cast<const T*>(object);
}
template <class T>
T& as(void* object) {
  return *static_cast<T*>(object);
}

/// The argument of `T::fields`.
template <class T>
class FieldMaker {
 public:
  FieldMaker(StructType& structure, const T& probe) : structure_(structure), probe_(probe) {}

  template <class Owner, class Member>
  FieldInfo& operator()(std::string_view name, Member Owner::* member, std::string_view doc) {
    const auto* begin = reinterpret_cast<const char*>(&probe_);
    const auto* at = reinterpret_cast<const char*>(&(probe_.*member));
    return structure_.add(name, doc, static_cast<std::size_t>(at - begin), type_of<Member>());
  }

 private:
  StructType& structure_;
  const T& probe_;
};

/// `gateway` of spillway::gateway::TokenBucket. GCC and Clang write T into the function's name.
template <class T>
constexpr std::string_view module_of() {
  std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::string_view root = "spillway::";
  text.remove_prefix(text.rfind(root) + root.size());
  return text.substr(0, text.find("::"));
}

template <class T>
StructType struct_type() {
  static const T defaults{};
  StructType type{.module = module_of<T>(),
                  .name = T::type_name,
                  .kind = {},
                  .doc = T::doc,
                  .fields = {},
                  .reasons = {},
                  .presets = {},
                  .defaults = &defaults,
                  .make = []() -> void* { return new T{}; },
                  .destroy = [](void* object) { delete static_cast<T*>(object); },
                  .assign = nullptr,
                  .check_rules = nullptr,
                  .is_part_of_identity = nullptr};
  T::fields(FieldMaker<T>(type, defaults));
  if constexpr (requires { T::kind; }) type.kind = T::kind;
  if constexpr (requires { T::reasons; }) {
    for (const auto& reason : T::reasons) {
      StructType::Reason& entry = type.reasons.emplace_back(
          StructType::Reason{reason.name, reason.category.name, reason.doc, {}});
      for (const std::string_view path : reason.decided_by) {
        if (!path.empty()) entry.decided_by.push_back(path);
      }
    }
  }
  if constexpr (requires { T::presets(); }) {
    for (const auto& [name, value] : T::presets()) type.presets.emplace_back(name, &value);
    type.assign = [](void* object, const void* preset) { as<T>(object) = as<T>(preset); };
  }
  if constexpr (requires(const T& object, std::vector<Violation>& out) {
                  object.validate("", out);
                }) {
    type.check_rules = [](const void* object, const std::string& path,
                          std::vector<Violation>& out) { as<T>(object).validate(path, out); };
  }
  if constexpr (requires(const T& object) { object.is_part_of_identity(""); }) {
    type.is_part_of_identity = [](const void* object, std::string_view field) {
      return as<T>(object).is_part_of_identity(field);
    };
  }
  return type;
}

template <class T, std::size_t... I>
VariantType variant_type(std::index_sequence<I...>) {
  return {.alternatives = {&type_of<std::variant_alternative_t<I, T>>()...},
          .index = [](const void* object) { return as<T>(object).index(); },
          .held =
              [](const void* object) {
                const void* found = nullptr;
                ((I == as<T>(object).index() ? (found = std::get_if<I>(&as<T>(object))) : nullptr),
                 ...);
                return found;
              },
          .emplace =
              [](void* object, std::size_t index) {
                void* made = nullptr;
                ((I == index ? (made = &as<T>(object).template emplace<I>()) : nullptr), ...);
                return made;
              }};
}

template <class T>
ListType list_type() {
  using Item = typename T::value_type;
  static_assert(!std::is_same_v<Item, bool>, "a std::vector<bool> has no items");
  return {.item = &type_of<Item>(),
          .item_size = sizeof(Item),
          .size = [](const void* object) { return as<T>(object).size(); },
          .first = [](const void* object) -> const void* { return as<T>(object).data(); },
          .reset = [](void* object, std::size_t size) -> void* {
            as<T>(object).clear();
            as<T>(object).resize(size);
            return as<T>(object).data();
          }};
}

template <class T>
OptionalType optional_type() {
  return {.content = &type_of<typename T::value_type>(),
          .held = [](const void* object) -> const void* {
            return as<T>(object) ? &*as<T>(object) : nullptr;
          },
          .clear = [](void* object) { as<T>(object).reset(); },
          .set =
              [](void* object, const std::function<bool(void*)>& fill) {
                typename T::value_type content{};
                if (fill(&content)) as<T>(object) = std::move(content);
              }};
}

template <class T>
AttachmentType attachment_type() {
  return {.get = [](const void* object) { return Value::Shared(as<T>(object)); },
          .set =
              [](void* object, const Value::Shared& attachment) {
                as<T>(object) = std::dynamic_pointer_cast<typename T::element_type>(attachment);
                return as<T>(object) != nullptr || attachment == nullptr;
              }};
}

template <class T>
ChoiceType choice_type() {
  static_assert(sizeof(T) == 1);
  return {.names = {EnumNames<T>::names.begin(), EnumNames<T>::names.end()}};
}

template <class T>
TypeInfo make_type() {
  if constexpr (std::is_same_v<T, bool>) {
    return {FlagType{}};
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return {IntegerType{}};
  } else if constexpr (std::is_same_v<T, double>) {
    return {RealType{}};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {TextType{}};
  } else if constexpr (std::is_same_v<T, Value>) {
    return {PlainType{}};
  } else if constexpr (std::is_enum_v<T>) {
    return {choice_type<T>()};
  } else if constexpr (is_vector<T>::value) {
    return {list_type<T>()};
  } else if constexpr (is_optional<T>::value) {
    return {optional_type<T>()};
  } else if constexpr (is_shared<T>::value) {
    return {attachment_type<T>()};
  } else if constexpr (is_variant<T>::value) {
    return {variant_type<T>(std::make_index_sequence<std::variant_size_v<T>>{})};
  } else {
    return {struct_type<T>()};
  }
}

}  // namespace spillway::sim::detail

namespace spillway::sim {

template <class T>
const TypeInfo& type_of() {
  static const TypeInfo type = detail::make_type<T>();
  return type;
}

}  // namespace spillway::sim
