#include "sim/schema/codec.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

namespace spillway::sim {

namespace {

template <class... Each>
struct Cases : Each... {
  using Each::operator()...;
};

bool is_noun(const TypeInfo& type) {
  return std::holds_alternative<StructType>(type.of) ||
         std::holds_alternative<VariantType>(type.of);
}

// ---- decode --------------------------------------------------------------------------------

void report_type(const Value& value, const std::string& path, std::string_view expected,
                 std::vector<Violation>& out) {
  out.push_back({path, to_text(value), "must be " + std::string(expected)});
}

void report_unknown_key(std::string_view key, const Value& value, const std::string& path,
                        const std::vector<std::string_view>& known, std::vector<Violation>& out) {
  out.push_back({join_path(path, key), to_text(value),
                 known.empty() ? "unknown setting; this structure has no settings"
                               : "unknown setting" + did_you_mean(key, known, out)});
}

class Decoder {
 public:
  Decoder(const Value& value, void* object, const std::string& path, std::vector<Violation>& out)
      : value_(value), object_(object), path_(path), out_(out) {}

  void operator()(const FlagType&) const {
    if (const bool* flag = value_.get_if<bool>()) {
      *static_cast<bool*>(object_) = *flag;
    } else {
      report("true or false");
    }
  }

  void operator()(const IntegerType&) const {
    const auto* whole = value_.get_if<std::int64_t>();
    const auto* real = value_.get_if<double>();
    if (whole) {
      *static_cast<std::int64_t*>(object_) = *whole;
    } else if (real && *real == std::floor(*real) && std::abs(*real) < 9e15) {
      *static_cast<std::int64_t*>(object_) = static_cast<std::int64_t>(*real);
    } else {
      report("a whole number");
    }
  }

  void operator()(const RealType&) const {
    const auto* whole = value_.get_if<std::int64_t>();
    const auto* real = value_.get_if<double>();
    if (whole) {
      *static_cast<double*>(object_) = static_cast<double>(*whole);
    } else if (real) {
      *static_cast<double*>(object_) = *real + 0.0;  // normalizes −0
    } else {
      report("a number");
    }
  }

  void operator()(const TextType&) const {
    if (const std::string* text = value_.get_if<std::string>()) {
      *static_cast<std::string*>(object_) = *text;
    } else {
      report("text");
    }
  }

  void operator()(const PlainType&) const {
    if (value_.get_if<Value::Map>()) {
      *static_cast<Value*>(object_) = value_;
    } else {
      report("a mapping");
    }
  }

  void operator()(const ChoiceType& type) const {
    const std::string* text = value_.get_if<std::string>();
    const auto take = [&](std::size_t number) {
      *static_cast<std::uint8_t*>(object_) = static_cast<std::uint8_t>(number);
    };
    for (std::size_t i = 0; text && i < type.names.size(); ++i) {
      if (*text == type.names[i]) return take(i);
    }
    std::string allowed = "must be one of";
    for (const auto name : type.names) {
      allowed += (name == type.names[0] ? " " : ", ") + std::string(name);
    }
    out_.push_back({path_, to_text(value_), allowed});
  }

  void operator()(const StructType& type) const {
    const auto* map = value_.get_if<Value::Map>();
    if (!map) return report("a mapping of settings");
    std::vector<std::string_view> known;
    for (const FieldInfo& field : type.fields) {
      if (!field.is_hidden) known.push_back(field.name);
    }
    if (!type.presets.empty()) {
      known.push_back("preset");
      if (const Value* name = value_.find("preset")) take_preset(type, *name);
    }
    for (const auto& [key, entry] : *map) {
      if (key == "preset" && !type.presets.empty()) continue;
      if (key == "kind" && !type.kind.empty()) {
        check_kind(type, entry);
        continue;
      }
      const auto field =
          std::find_if(type.fields.begin(), type.fields.end(),
                       [&key = key](const FieldInfo& setting) { return key == setting.name; });
      if (field == type.fields.end()) {
        report_unknown_key(key, entry, path_, known, out_);
      } else {
        void* at = static_cast<char*>(object_) + field->offset;
        decode(*field->type, entry, at, join_path(path_, key), out_);
      }
    }
  }

  void operator()(const VariantType& type) const {
    std::vector<std::string_view> known;
    known.reserve(type.alternatives.size());
    for (const TypeInfo* alternative : type.alternatives) {
      known.push_back(alternative->structure().kind);
    }
    const std::string* kind = named_kind(known);
    if (!kind) return;
    const auto index = static_cast<std::size_t>(std::ranges::find(known, *kind) - known.begin());
    void* held = type.emplace(object_, index);
    if (value_.get_if<Value::Map>()) decode(*type.alternatives[index], value_, held, path_, out_);
  }

  void operator()(const ListType& type) const {
    const auto* list = value_.get_if<Value::List>();
    if (!list) {
      // A single structure stands for a list of one.
      if (!is_noun(*type.item) || value_.is_null()) return report("a list");
      return decode(*type.item, value_, type.reset(object_, 1), index_path(path_, 0), out_);
    }
    auto* at = static_cast<char*>(type.reset(object_, list->size()));
    for (std::size_t i = 0; i < list->size(); ++i, at += type.item_size) {
      decode(*type.item, (*list)[i], at, index_path(path_, i), out_);
    }
  }

  void operator()(const OptionalType& type) const {
    if (value_.is_null()) return type.clear(object_);
    type.set(object_, [&](void* content) {
      const std::size_t before = out_.size();
      decode(*type.content, value_, content, path_, out_);
      return out_.size() == before;
    });
  }

  void operator()(const AttachmentType& type) const {
    const auto* shared = value_.get_if<Value::Shared>();
    const bool fits = type.set(object_, shared ? *shared : nullptr);
    if (!fits || !(shared || value_.is_null())) report("data");
  }

 private:
  void report(std::string_view expected) const { report_type(value_, path_, expected, out_); }

  void check_kind(const StructType& type, const Value& value) const {
    const std::string* kind = value.get_if<std::string>();
    if (kind && *kind == type.kind) return;
    out_.push_back({join_path(path_, "kind"), to_text(value),
                    "must be '" + std::string(type.kind) + "' here"});
  }

  void take_preset(const StructType& type, const Value& name) const {
    std::vector<std::string_view> known;
    const std::string* wanted = name.get_if<std::string>();
    for (const auto& [preset, settings] : type.presets) {
      known.push_back(preset);
      if (wanted && *wanted == preset) return type.assign(object_, settings);
    }
    out_.push_back(
        {join_path(path_, "preset"), to_text(name),
         "unknown preset" + (wanted ? did_you_mean(*wanted, known, out_) : std::string())});
  }

  // The kind that the value names; null, after a report, if it names none of `known`.
  const std::string* named_kind(const std::vector<std::string_view>& known) const {
    // A bare name stands for that kind with its defaults.
    const Value* named = value_.get_if<std::string>() ? &value_ : value_.find("kind");
    const std::string* kind = named ? named->get_if<std::string>() : nullptr;
    if (kind && std::ranges::find(known, *kind) != known.end()) return kind;
    if (kind) {
      out_.push_back({join_path(path_, "kind"), to_text(*named),
                      "unknown kind" + did_you_mean(*kind, known, out_)});
    } else {
      out_.push_back(
          {path_, to_text(value_), "must name its kind" + did_you_mean("", known, out_)});
    }
    return nullptr;
  }

  const Value& value_;
  void* object_;
  const std::string& path_;
  std::vector<Violation>& out_;
};

// ---- validate ------------------------------------------------------------------------------

// Where a value is: the text is made for violations alone.
class Place {
 public:
  explicit Place(const std::string& path) : path_(&path) {}
  Place(const Place& structure, std::string_view field) : within_(&structure), field_(field) {}
  Place(const Place& list, std::size_t index) : within_(&list), index_(index) {}

  std::string path() const {
    if (!within_) return *path_;
    return field_.empty() ? index_path(within_->path(), index_)
                          : join_path(within_->path(), field_);
  }

 private:
  const Place* within_ = nullptr;
  const std::string* path_ = nullptr;  // of the outermost value
  std::string_view field_;             // empty: an entry of a list
  std::size_t index_ = 0;
};

void check_number(double number, const FieldInfo& field, const Place& place,
                  std::vector<Violation>& out) {
  const Range& range = field.valid;
  if (std::isfinite(number) && range.contains(number)) return;
  std::string allowed = std::isfinite(number) ? "must be" : "must be a finite number";
  if (std::isfinite(range.min)) {
    allowed += (range.min_open ? " > " : " >= ") + to_text(range.min);
  }
  if (std::isfinite(range.max)) {
    allowed += std::isfinite(range.min) ? " and" : "";
    allowed += (range.max_open ? " < " : " <= ") + to_text(range.max);
  }
  if (!field.unit_name.empty()) allowed += " (" + std::string(field.unit_name) + ")";
  out.push_back({place.path(), to_text(number), allowed});
}

// `field`: the field with the value, for the ranges of numbers.
void validate_member(const TypeInfo& type, const void* object, const FieldInfo& field,
                     const Place& place, std::vector<Violation>& out) {
  std::visit(Cases{
                 [&](const IntegerType&) {
                   check_number(static_cast<double>(*static_cast<const std::int64_t*>(object)),
                                field, place, out);
                 },
                 [&](const RealType&) {
                   check_number(*static_cast<const double*>(object), field, place, out);
                 },
                 [&](const StructType& structure) {
                   const std::size_t before = out.size();
                   for (const FieldInfo& setting : structure.fields) {
                     const Place at(place, setting.name);
                     validate_member(*setting.type, member(setting, object), setting, at, out);
                   }
                   if (!structure.check_rules || out.size() > before) return;
                   structure.check_rules(object, {}, out);
                   if (out.size() == before) return;
                   out.resize(before);  // again, now that the path is needed
                   structure.check_rules(object, place.path(), out);
                 },
                 [&](const VariantType& variant) {
                   validate_member(*variant.alternatives[variant.index(object)],
                                   variant.held(object), field, place, out);
                 },
                 [&](const ListType& list) {
                   for (std::size_t i = 0; i < list.size(object); ++i) {
                     validate_member(*list.item, item(list, object, i), field, Place(place, i),
                                     out);
                   }
                 },
                 [&](const OptionalType& optional) {
                   if (const void* held = optional.held(object)) {
                     validate_member(*optional.content, held, field, place, out);
                   }
                 },
                 [](const auto&) {},
             },
             type.of);
}

// ---- differences ---------------------------------------------------------------------------

// `field`: the innermost one with the values.
void compare(const TypeInfo& type, const void* a, const void* b, const FieldInfo* field,
             const Place& place, std::vector<Difference>& out) {
  const auto differ = [&] { out.push_back({place.path(), field}); };
  std::visit(
      Cases{
          [&](const StructType& structure) {
            for (const FieldInfo& setting : structure.fields) {
              const Place at(place, setting.name);
              compare(*setting.type, member(setting, a), member(setting, b), &setting, at, out);
            }
          },
          [&](const VariantType& variant) {
            if (variant.index(a) != variant.index(b)) return differ();
            compare(*variant.alternatives[variant.index(a)], variant.held(a), variant.held(b),
                    field, place, out);
          },
          [&](const ListType& list) {
            if (list.size(a) != list.size(b)) return differ();
            for (std::size_t i = 0; i < list.size(a); ++i) {
              compare(*list.item, item(list, a, i), item(list, b, i), field, Place(place, i), out);
            }
          },
          [&](const OptionalType& optional) {
            const void* one = optional.held(a);
            const void* other = optional.held(b);
            if (one && other) {
              compare(*optional.content, one, other, field, place, out);
            } else if (one || other) {
              differ();
            }
          },
          [&](const AttachmentType& attachment) {
            if (attachment.get(a) != attachment.get(b)) differ();
          },
          [&](const auto&) {
            if (!(encode(type, a) == encode(type, b))) differ();
          },
      },
      type.of);
}

// ---- describe ------------------------------------------------------------------------------

// Adds the description of a type: `type`, and `of`, `alternatives` or `choices`.
void describe_type(const TypeInfo& type, Depth depth, Value::Map& map) {
  const auto described = [&](const StructType& structure) {
    return depth == Depth::all ? describe(structure)
                               : Value(Value::Map{{"name", Value(structure.name)}});
  };
  const auto add_type = [&](std::string_view name) { map.emplace_back("type", Value(name)); };
  std::visit(Cases{
                 [&](const FlagType&) { add_type("bool"); },
                 [&](const IntegerType&) { add_type("int"); },
                 [&](const RealType&) { add_type("float"); },
                 [&](const PlainType&) { add_type("mapping"); },
                 [&](const ChoiceType& choice) {
                   add_type("choice");
                   Value::List choices;
                   for (const std::string_view name : choice.names) choices.emplace_back(name);
                   map.emplace_back("choices", std::move(choices));
                 },
                 [&](const StructType& structure) {
                   add_type("struct");
                   map.emplace_back("of", described(structure));
                 },
                 [&](const VariantType& variant) {
                   add_type("variant");
                   Value::List alternatives;
                   for (const TypeInfo* alternative : variant.alternatives) {
                     alternatives.push_back(described(alternative->structure()));
                   }
                   map.emplace_back("alternatives", std::move(alternatives));
                 },
                 [&](const ListType& list) {
                   map.emplace_back("sequence", true);
                   describe_type(*list.item, depth, map);
                 },
                 [&](const OptionalType& optional) {
                   map.emplace_back("optional", true);
                   describe_type(*optional.content, depth, map);
                 },
                 [&](const auto&) { add_type("str"); },
             },
             type.of);
}

Value described(const FieldInfo& field, const void* defaults, Depth depth) {
  Value::Map entry;
  entry.emplace_back("name", Value(field.name));
  describe_type(*field.type, depth, entry);
  entry.emplace_back("doc", Value(field.doc));
  entry.emplace_back("unit", Value(field.unit_name));
  entry.emplace_back("default", encode(*field.type, member(field, defaults)));
  const Range& valid = field.valid;
  if (std::isfinite(valid.min)) {
    entry.emplace_back(valid.min_open ? "more_than" : "at_least", Value(valid.min));
  }
  if (std::isfinite(valid.max)) {
    entry.emplace_back(valid.max_open ? "less_than" : "at_most", Value(valid.max));
  }
  const Search& search = field.search_range;
  if (search.high > search.low) {
    entry.emplace_back("search", Value(Value::Map{{"low", Value(search.low)},
                                                  {"high", Value(search.high)},
                                                  {"log", Value(search.log)}}));
  }
  if (field.is_dimensionless) entry.emplace_back("dimensionless", true);
  if (field.is_runtime) entry.emplace_back("runtime", true);
  return entry;
}

}  // namespace

FieldInfo& StructType::add(std::string_view field, std::string_view meaning, std::size_t offset,
                           const TypeInfo& type) {
  return fields.emplace_back(
      FieldInfo{.name = field, .doc = meaning, .type = &type, .offset = offset});
}

Value encode(const TypeInfo& type, const void* object, Purpose purpose) {
  return std::visit(
      Cases{
          [&](const FlagType&) { return Value(*static_cast<const bool*>(object)); },
          [&](const IntegerType&) { return Value(*static_cast<const std::int64_t*>(object)); },
          [&](const RealType&) { return Value(*static_cast<const double*>(object)); },
          [&](const TextType&) { return Value(*static_cast<const std::string*>(object)); },
          [&](const PlainType&) { return *static_cast<const Value*>(object); },
          [&](const ChoiceType& choice) {
            return Value(choice.names[*static_cast<const std::uint8_t*>(object)]);
          },
          [&](const StructType& structure) {
            const bool all = purpose != Purpose::identity || !structure.is_part_of_identity;
            Value::Map map;
            map.reserve(structure.fields.size() + 1);
            if (!structure.kind.empty()) map.emplace_back("kind", Value(structure.kind));
            for (const FieldInfo& field : structure.fields) {
              if (!all && !structure.is_part_of_identity(object, field.name)) continue;
              map.emplace_back(field.name, encode(*field.type, member(field, object), purpose));
            }
            return Value(std::move(map));
          },
          [&](const VariantType& variant) {
            return encode(*variant.alternatives[variant.index(object)], variant.held(object),
                          purpose);
          },
          [&](const ListType& list) {
            Value::List items;
            items.reserve(list.size(object));
            for (std::size_t i = 0; i < list.size(object); ++i) {
              items.push_back(encode(*list.item, item(list, object, i), purpose));
            }
            return Value(std::move(items));
          },
          [&](const OptionalType& optional) {
            const void* held = optional.held(object);
            return held ? encode(*optional.content, held, purpose) : Value();
          },
          [&](const AttachmentType& attachment) { return Value(attachment.get(object)); },
      },
      type.of);
}

void decode(const TypeInfo& type, const Value& value, void* object, const std::string& path,
            std::vector<Violation>& out) {
  std::visit(Decoder(value, object, path, out), type.of);
}

void validate(const TypeInfo& type, const void* object, const std::string& path,
              std::vector<Violation>& out) {
  validate_member(type, object, {}, Place(path), out);
}

std::vector<Difference> differences(const TypeInfo& type, const void* a, const void* b) {
  std::vector<Difference> found;
  const std::string root;
  compare(type, a, b, nullptr, Place(root), found);
  return found;
}

Value describe(const StructType& type, Depth depth) {
  Value::Map map;
  map.emplace_back("name", Value(type.name));
  if (!type.kind.empty()) map.emplace_back("kind", Value(type.kind));
  map.emplace_back("doc", Value(type.doc));
  Value::List fields;
  for (const FieldInfo& field : type.fields) {
    if (!field.is_hidden) fields.push_back(described(field, type.defaults, depth));
  }
  map.emplace_back("fields", std::move(fields));
  if (!type.reasons.empty()) {
    Value::List reasons;
    for (const StructType::Reason& reason : type.reasons) {
      const Value::List decided_by(reason.decided_by.begin(), reason.decided_by.end());
      reasons.emplace_back(Value::Map{{"name", Value(reason.name)},
                                      {"word", Value(reason.category)},
                                      {"doc", Value(reason.doc)},
                                      {"decided_by", Value(decided_by)}});
    }
    map.emplace_back("reasons", std::move(reasons));
  }
  if (!type.presets.empty()) {
    Value::List names;
    for (const auto& preset : type.presets) names.emplace_back(preset.first);
    map.emplace_back("presets", std::move(names));
  }
  return map;
}

std::shared_ptr<const void> from_value(const TypeInfo& type, const Value& value,
                                       const std::string& path) {
  const StructType& structure = type.structure();
  const std::shared_ptr<void> object(structure.make(), structure.destroy);
  std::vector<Violation> violations;
  decode(type, value, object.get(), path, violations);
  validate(type, object.get(), path, violations);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return object;
}

}  // namespace spillway::sim
