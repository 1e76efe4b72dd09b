#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/error.h"

namespace spillway::sim {

/// Base of immutable data that a configuration carries by reference, such as a trace's columns.
class Attachment {
 public:
  virtual ~Attachment() = default;
};

/// The neutral form of a configuration, common to YAML and JSON files, Python dicts and keyword
/// arguments. Maps keep the order of their keys. An attachment is carried along but is not part of
/// the written form.
struct Value {
  using List = std::vector<Value>;
  using Map = std::vector<std::pair<std::string, Value>>;
  using Shared = std::shared_ptr<const Attachment>;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Map, Shared> data;

  Value() = default;
  template <class T>
    requires std::constructible_from<decltype(data), T>
  Value(T content) : data(std::move(content)) {}             // NOLINT(google-explicit-constructor)
  Value(std::string_view text) : data(std::string(text)) {}  // NOLINT(google-explicit-constructor)

  bool is_null() const { return std::holds_alternative<std::monostate>(data); }
  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data);
  }

  /// The entry of a map; null if this is not a map or has no such key.
  const Value* find(std::string_view key) const;

  /// Equality of the written forms: attachments are ignored.
  friend bool operator==(const Value& a, const Value& b);
};

/// The value as it is written: `12`, `0.5`, `'text'`, `[…]`, `{…}`; long text is shortened.
std::string to_text(const Value& value);

/// Shortest decimal form that reads back as the same double.
std::string to_text(double number);

/// A copy of `root` in which the setting at the dotted `path` is replaced. List entries are
/// addressed by index, by their `name` or `kind`, or by their first setting if that is text:
/// `tenants[gold].weight`. A `preset` replaces all settings of its structure. An unknown path is a
/// violation that names the nearest one.
Value with_path(Value root, std::string_view path, Value replacement,
                std::vector<Violation>& violations);
/// The setting at the dotted path; null: it does not exist, which is a violation. A setting that is
/// unset is added if it may exist.
Value* at_path(Value& root, std::string_view path, std::vector<Violation>& violations);

/// "; did you mean 'x'?" for the candidate nearest to `name`, or the list of candidates if none is
/// near.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates);
/// The same of another violation than `earlier` ones; "" if the message will not show it.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates,
                         const std::vector<Violation>& earlier);

}  // namespace spillway::sim
