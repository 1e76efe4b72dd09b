#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "sim/error.h"
#include "sim/value.h"

/// Field descriptors: the one definition from which a configuration struct's validation, file form,
/// Python class, documentation and search range all derive.
///
/// A configuration struct is a plain struct with defaults and
///   static constexpr std::string_view type_name, doc;
///   static constexpr auto fields() { return std::tuple(field("name", &T::name, "What it
///   means.")…); }
/// and, where it applies,
///   static constexpr std::string_view kind;                       an alternative of a variant (a
///   policy) void validate(const std::string& path, std::vector<Violation>&) const;   rules that
///   span fields static const std::vector<std::pair<std::string_view, T>>& presets();     named
///   values to start from
namespace spillway::sim {

/// Valid values of a number. Every finite number by default; NaN and infinities never are.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;

  constexpr bool contains(double x) const {
    return (min_open ? x > min : x >= min) && (max_open ? x < max : x <= max);
  }
};
constexpr Range at_least(double min) { return {.min = min}; }
constexpr Range more_than(double min) { return {.min = min, .min_open = true}; }
constexpr Range between(double min, double max) { return {.min = min, .max = max}; }
constexpr Range positive_up_to(double max) { return {.min = 0, .max = max, .min_open = true}; }
constexpr Range positive_below(double max) {
  return {.min = 0, .max = max, .min_open = true, .max_open = true};
}

/// Where an optimiser looks by default.
struct Search {
  double low = 0;
  double high = 0;
  bool log = false;
};

template <class Owner, class Member>
struct Field {
  using member_type = Member;

  std::string_view name;
  Member Owner::* member;
  std::string_view doc;
  std::string_view unit_name{};
  Range valid{};
  Search search_range{};
  bool is_hidden = false;

  constexpr Field unit(std::string_view text) const {
    Field copy = *this;
    copy.unit_name = text;
    return copy;
  }
  constexpr Field range(Range allowed) const {
    Field copy = *this;
    copy.valid = allowed;
    return copy;
  }
  constexpr Field search(double low, double high) const {
    Field copy = *this;
    copy.search_range = {low, high, false};
    return copy;
  }
  constexpr Field log_search(double low, double high) const {
    Field copy = *this;
    copy.search_range = {low, high, true};
    return copy;
  }
  /// Carried along but neither written nor documented.
  constexpr Field hidden() const {
    Field copy = *this;
    copy.is_hidden = true;
    return copy;
  }
};

template <class Owner, class Member>
constexpr Field<Owner, Member> field(std::string_view name, Member Owner::* member,
                                     std::string_view doc) {
  return {name, member, doc};
}

/// Specialise with `static constexpr std::array names` to give an enum (0, 1, …) its written form.
/// What a value was called in an earlier version is still read where `static constexpr std::array
/// former` pairs that name with the value.
template <class E>
struct EnumNames;

template <class T>
concept ConfigStruct = requires { T::fields(); };
template <class T>
concept Kinded = ConfigStruct<T> && requires { T::kind; };

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_variant : std::false_type {};
template <class... T>
struct is_variant<std::variant<T...>> : std::true_type {};
template <class T>
struct is_shared : std::false_type {};
template <class T>
struct is_shared<std::shared_ptr<const T>> : std::true_type {};

/// Calls `visit(field)` for each field of T, in order.
template <ConfigStruct T, class Visit>
void for_each_field(Visit&& visit) {
  std::apply([&](const auto&... each) { (visit(each), ...); }, T::fields());
}

inline std::string join_path(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}
inline std::string index_path(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

/// The kinds of a variant's alternatives.
template <class Variant, std::size_t... I>
std::vector<std::string_view> kinds_of(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, Variant>::kind...};
}
template <class Variant>
std::vector<std::string_view> kinds() {
  return kinds_of<Variant>(std::make_index_sequence<std::variant_size_v<Variant>>{});
}

// ---- encode
// ---------------------------------------------------------------------------------------------------

/// What an encoded value is for: writing it down, or telling whether two are the same. They differ
/// where a struct has `bool is_named_by(field name) const`, which says whether a field takes part
/// in its identity.
enum class Purpose : std::uint8_t { writing, identity };

/// What is done with values of one type, derived from its field descriptors.
///
/// A variant, or a struct with many parts, is compiled once: `extern template struct Codec<T>;`
/// stands where T is defined, `template struct Codec<T>;` in its folder's `codecs.cpp`.
template <class T>
struct Codec {
  static Value encode(const T& object, Purpose purpose);
  static void decode(const Value& value, T& object, const std::string& path,
                     std::vector<Violation>& out);
  /// `range` and `unit`: of the field that holds it, for numbers.
  static void validate(const T& member, const Range& range, std::string_view unit,
                       const std::string& path, std::vector<Violation>& out);
  /// Adds what is known about the type: `type`, and `of` or `alternatives` or `choices`.
  static void describe(Value::Map& map);
};

template <class T>
Value encode(const T& object, Purpose purpose = Purpose::writing) {
  return Codec<T>::encode(object, purpose);
}
template <class T>
void decode(const Value& value, T& object, const std::string& path, std::vector<Violation>& out) {
  Codec<T>::decode(value, object, path, out);
}

template <class T>
Value Codec<T>::encode(const T& object, Purpose purpose) {
  if constexpr (ConfigStruct<T>) {
    Value::Map map;
    if constexpr (Kinded<T>) map.emplace_back("kind", Value(T::kind));
    for_each_field<T>([&](const auto& f) {
      if constexpr (requires { object.is_named_by(f.name); }) {
        if (purpose == Purpose::identity && !object.is_named_by(f.name)) return;
      }
      map.emplace_back(std::string(f.name), sim::encode(object.*f.member, purpose));
    });
    return map;
  } else if constexpr (is_variant<T>::value) {
    return std::visit([&](const auto& alternative) { return sim::encode(alternative, purpose); },
                      object);
  } else if constexpr (is_vector<T>::value) {
    Value::List list;
    for (const auto& item : object) list.push_back(sim::encode(item, purpose));
    return list;
  } else if constexpr (is_optional<T>::value) {
    return object ? sim::encode(*object, purpose) : Value();
  } else if constexpr (is_shared<T>::value) {
    return Value(Value::Shared(object));
  } else if constexpr (std::is_enum_v<T>) {
    return Value(std::string_view(EnumNames<T>::names[static_cast<std::size_t>(object)]));
  } else {
    return Value(object);
  }
}

// ---- decode
// ---------------------------------------------------------------------------------------------------

void report_type(const Value& value, const std::string& path, std::string_view expected,
                 std::vector<Violation>& out);
void report_unknown_key(std::string_view key, const Value& value, const std::string& path,
                        const std::vector<std::string_view>& known, std::vector<Violation>& out);
/// The `kind` a value names, or null after reporting why it names none of `known`.
const std::string* kind_named(const Value& value, const std::string& path,
                              const std::vector<std::string_view>& known,
                              std::vector<Violation>& out);

template <class T>
bool decode_preset(const Value& name, T& object, const std::string& path,
                   std::vector<Violation>& out) {
  std::vector<std::string_view> known;
  const std::string* wanted = name.get_if<std::string>();
  for (const auto& [preset, value] : T::presets()) {
    known.push_back(preset);
    if (wanted && *wanted == preset) {
      object = value;
      return true;
    }
  }
  out.push_back({join_path(path, "preset"), to_text(name),
                 "is no known preset" + (wanted ? did_you_mean(*wanted, known) : std::string())});
  return false;
}

template <ConfigStruct T>
void decode_struct(const Value& value, T& object, const std::string& path,
                   std::vector<Violation>& out) {
  const auto* map = value.get_if<Value::Map>();
  if (!map) return report_type(value, path, "a mapping of settings", out);
  std::vector<std::string_view> known;
  for_each_field<T>([&](const auto& f) {
    if (!f.is_hidden) known.push_back(f.name);
  });
  constexpr bool has_presets = requires { T::presets(); };
  if constexpr (has_presets) {
    known.push_back("preset");
    if (const Value* name = value.find("preset")) decode_preset(*name, object, path, out);
  }
  for (const auto& [key, item] : *map) {
    bool found = has_presets && key == "preset";
    if constexpr (Kinded<T>) {
      if (key == "kind") {
        const std::string* kind = item.template get_if<std::string>();
        if (!kind || *kind != T::kind) {
          out.push_back({join_path(path, "kind"), to_text(item),
                         "must be '" + std::string(T::kind) + "' here"});
        }
        found = true;
      }
    }
    for_each_field<T>([&](const auto& f) {
      if (key != f.name) return;
      found = true;
      decode(item, object.*f.member, join_path(path, f.name), out);
    });
    if (!found) report_unknown_key(key, item, path, known, out);
  }
}

template <class Variant, std::size_t... I>
void decode_alternative(const Value& value, const std::string& kind, Variant& object,
                        const std::string& path, std::vector<Violation>& out,
                        std::index_sequence<I...>) {
  const auto try_one = [&]<class T>(std::type_identity<T>) {
    if (kind != T::kind) return;
    T alternative{};
    if (value.get_if<Value::Map>()) decode_struct(value, alternative, path, out);
    object = std::move(alternative);
  };
  (try_one(std::type_identity<std::variant_alternative_t<I, Variant>>{}), ...);
}

template <class T>
void Codec<T>::decode(const Value& value, T& object, const std::string& path,
                      std::vector<Violation>& out) {
  if constexpr (ConfigStruct<T>) {
    decode_struct(value, object, path, out);
  } else if constexpr (is_variant<T>::value) {
    if (const std::string* kind = kind_named(value, path, kinds<T>(), out)) {
      decode_alternative(value, *kind, object, path, out,
                         std::make_index_sequence<std::variant_size_v<T>>{});
    }
  } else if constexpr (is_vector<T>::value) {
    using Item = typename T::value_type;
    const auto* list = value.get_if<Value::List>();
    if (!list) {
      // A single noun stands for a list of one.
      if constexpr (ConfigStruct<Item> || is_variant<Item>::value) {
        if (!value.is_null()) {
          object.assign(1, Item{});
          return sim::decode(value, object[0], index_path(path, 0), out);
        }
      }
      return report_type(value, path, "a list", out);
    }
    object.assign(list->size(), Item{});
    for (std::size_t i = 0; i < list->size(); ++i) {
      if constexpr (std::is_scalar_v<Item>) {
        Item item{};
        sim::decode((*list)[i], item, index_path(path, i), out);
        object[i] = item;
      } else {
        sim::decode((*list)[i], object[i], index_path(path, i), out);
      }
    }
  } else if constexpr (is_optional<T>::value) {
    if (value.is_null()) {
      object.reset();
    } else {
      const std::size_t before = out.size();
      typename T::value_type content{};
      sim::decode(value, content, path, out);
      if (out.size() == before) object = std::move(content);
    }
  } else if constexpr (is_shared<T>::value) {
    const auto* shared = value.get_if<Value::Shared>();
    if (value.is_null()) return object.reset();
    object = shared ? std::dynamic_pointer_cast<typename T::element_type>(*shared) : nullptr;
    if (!object && !(shared && !*shared)) report_type(value, path, "data", out);
  } else if constexpr (std::is_enum_v<T>) {
    std::vector<std::string_view> names(EnumNames<T>::names.begin(), EnumNames<T>::names.end());
    const std::string* text = value.get_if<std::string>();
    for (std::size_t i = 0; text && i < names.size(); ++i) {
      if (*text == names[i]) {
        object = static_cast<T>(i);
        return;
      }
    }
    if constexpr (requires { EnumNames<T>::former; }) {
      for (const auto& [name, renamed] : EnumNames<T>::former) {
        if (!text || *text != name) continue;
        object = renamed;
        return;
      }
    }
    std::string allowed = "must be one of";
    for (const auto name : names) allowed += (name == names[0] ? " " : ", ") + std::string(name);
    out.push_back({path, to_text(value), allowed});
  } else if constexpr (std::is_same_v<T, bool>) {
    if (const bool* flag = value.get_if<bool>()) {
      object = *flag;
    } else {
      report_type(value, path, "true or false", out);
    }
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    const auto* whole = value.get_if<std::int64_t>();
    const auto* real = value.get_if<double>();
    if (whole) {
      object = *whole;
    } else if (real && *real == std::floor(*real) && std::abs(*real) < 9e15) {
      object = static_cast<std::int64_t>(*real);
    } else {
      report_type(value, path, "a whole number", out);
    }
  } else if constexpr (std::is_same_v<T, double>) {
    const auto* whole = value.get_if<std::int64_t>();
    const auto* real = value.get_if<double>();
    if (whole) {
      object = static_cast<double>(*whole);
    } else if (real) {
      object = *real + 0.0;  // there is but one zero
    } else {
      report_type(value, path, "a number", out);
    }
  } else {
    static_assert(std::is_same_v<T, std::string>, "no codec for this field type");
    if (const std::string* text = value.get_if<std::string>()) {
      object = *text;
    } else {
      report_type(value, path, "text", out);
    }
  }
}

// ---- validate
// -------------------------------------------------------------------------------------------------

void check_number(double number, const Range& range, std::string_view unit, const std::string& path,
                  std::vector<Violation>& out);

template <class T>
void validate_member(const T& member, const Range& range, std::string_view unit,
                     const std::string& path, std::vector<Violation>& out) {
  Codec<T>::validate(member, range, unit, path, out);
}

/// Reports every value outside its field's range and every broken rule that spans fields.
template <ConfigStruct T>
void validate_struct(const T& object, const std::string& path, std::vector<Violation>& out) {
  const std::size_t before = out.size();
  for_each_field<T>([&](const auto& f) {
    validate_member(object.*f.member, f.valid, f.unit_name, join_path(path, f.name), out);
  });
  if constexpr (requires { object.validate(path, out); }) {
    if (out.size() == before) object.validate(path, out);
  }
}

template <class T>
void Codec<T>::validate(const T& member, const Range& range, std::string_view unit,
                        const std::string& path, std::vector<Violation>& out) {
  if constexpr (ConfigStruct<T>) {
    validate_struct(member, path, out);
  } else if constexpr (is_variant<T>::value) {
    std::visit([&](const auto& alternative) { validate_struct(alternative, path, out); }, member);
  } else if constexpr (is_vector<T>::value) {
    for (std::size_t i = 0; i < member.size(); ++i) {
      validate_member(member[i], range, unit, index_path(path, i), out);
    }
  } else if constexpr (is_optional<T>::value) {
    if (member) validate_member(*member, range, unit, path, out);
  } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>) {
    check_number(static_cast<double>(member), range, unit, path, out);
  }
}

/// Builds a T from its written form and validates it; throws one ConfigError with all violations.
/// Settings that `value` leaves out keep the value they have in `start`.
template <ConfigStruct T>
T from_value(const Value& value, T start = T{}, const std::string& path = "") {
  std::vector<Violation> violations;
  decode(value, start, path, violations);
  validate_member(start, {}, {}, path, violations);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return start;
}

/// Throws one ConfigError with all violations of an object that was built in C++.
template <ConfigStruct T>
void check(const T& object, const std::string& path = "") {
  std::vector<Violation> violations;
  validate_member(object, {}, {}, path, violations);
  if (!violations.empty()) throw ConfigError(std::move(violations));
}

// ---- describe
// -------------------------------------------------------------------------------------------------

template <ConfigStruct T>
Value describe();

template <class Variant, std::size_t... I>
Value::List describe_alternatives(std::index_sequence<I...>) {
  return {describe<std::variant_alternative_t<I, Variant>>()...};
}

template <class T>
void describe_type(Value::Map& map) {
  Codec<T>::describe(map);
}

template <class T>
void Codec<T>::describe(Value::Map& map) {
  if constexpr (is_optional<T>::value) {
    map.emplace_back("optional", true);
    describe_type<typename T::value_type>(map);
  } else if constexpr (is_vector<T>::value) {
    map.emplace_back("sequence", true);
    describe_type<typename T::value_type>(map);
  } else if constexpr (ConfigStruct<T>) {
    map.emplace_back("type", Value("struct"));
    map.emplace_back("of", sim::describe<T>());
  } else if constexpr (is_variant<T>::value) {
    map.emplace_back("type", Value("variant"));
    map.emplace_back(
        "alternatives",
        Value(describe_alternatives<T>(std::make_index_sequence<std::variant_size_v<T>>{})));
  } else if constexpr (std::is_enum_v<T>) {
    map.emplace_back("type", Value("choice"));
    Value::List choices;
    for (const std::string_view name : EnumNames<T>::names) choices.emplace_back(name);
    map.emplace_back("choices", std::move(choices));
  } else if constexpr (std::is_same_v<T, bool>) {
    map.emplace_back("type", Value("bool"));
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    map.emplace_back("type", Value("int"));
  } else if constexpr (std::is_same_v<T, double>) {
    map.emplace_back("type", Value("float"));
  } else {
    map.emplace_back("type", Value("str"));
  }
}

/// Everything that is known about T, as a tree: names, documentation, units, ranges, defaults,
/// alternatives.
template <ConfigStruct T>
Value describe() {
  Value::Map map;
  map.emplace_back("name", Value(T::type_name));
  if constexpr (Kinded<T>) map.emplace_back("kind", Value(T::kind));
  map.emplace_back("doc", Value(T::doc));
  const T defaults{};
  Value::List fields;
  for_each_field<T>([&](const auto& f) {
    using Member = typename std::remove_cvref_t<decltype(f)>::member_type;
    if (f.is_hidden) return;
    Value::Map entry;
    entry.emplace_back("name", Value(f.name));
    describe_type<Member>(entry);
    entry.emplace_back("doc", Value(f.doc));
    entry.emplace_back("unit", Value(f.unit_name));
    entry.emplace_back("default", encode(defaults.*f.member));
    if (std::isfinite(f.valid.min)) {
      entry.emplace_back(f.valid.min_open ? "more_than" : "at_least", Value(f.valid.min));
    }
    if (std::isfinite(f.valid.max)) {
      entry.emplace_back(f.valid.max_open ? "less_than" : "at_most", Value(f.valid.max));
    }
    if (f.search_range.high > f.search_range.low) {
      entry.emplace_back("search", Value(Value::Map{{"low", Value(f.search_range.low)},
                                                    {"high", Value(f.search_range.high)},
                                                    {"log", Value(f.search_range.log)}}));
    }
    fields.emplace_back(std::move(entry));
  });
  map.emplace_back("fields", std::move(fields));
  if constexpr (requires { T::reasons; }) {
    Value::List reasons;
    for (const auto& reason : T::reasons) {
      Value::List decided_by;
      for (const std::string_view path : reason.decided_by) {
        if (!path.empty()) decided_by.emplace_back(path);
      }
      reasons.emplace_back(Value::Map{{"name", Value(reason.name)},
                                      {"word", Value(reason.word.name)},
                                      {"doc", Value(reason.doc)},
                                      {"decided_by", Value(std::move(decided_by))}});
    }
    map.emplace_back("reasons", std::move(reasons));
  }
  if constexpr (requires { T::presets(); }) {
    Value::List names;
    for (const auto& preset : T::presets()) names.emplace_back(preset.first);
    map.emplace_back("presets", std::move(names));
  }
  return map;
}

}  // namespace spillway::sim
