#pragma once

#include <cstddef>
#include <string_view>

#include "sim/schema/range.h"

/// The author's side of configuration: the one definition from which a structure's validation, file
/// form, Python class, documentation and search range all derive.
///
/// A configuration structure is a plain struct with defaults and
///
///   static constexpr std::string_view type_name, doc;
///   static void fields(auto field) {
///     field("name", &T::name, "What it means.").unit("s").range(sim::at_least(0));
///     …
///   }
///
/// and, where it applies,
///
///   static constexpr std::string_view kind;
///     of an alternative of a variant (a policy);
///   void validate(const std::string& path, std::vector<Violation>&) const;
///     rules that span fields;
///   static const std::vector<std::pair<std::string_view, T>>& presets();
///     named values to start from;
///   static constexpr std::array reasons;
///     of its rejections;
///   bool is_part_of_identity(std::string_view field) const;
///     whether a field takes part in the structure's identity; all do by default.
///
/// A field is a bool, std::int64_t, double, std::string, an enum with `EnumNames`, another
/// structure, a `Value` that is a mapping, a variant of structures that have a `kind`, a shared
/// pointer to an `Attachment`, or a std::vector or std::optional of these. A structure registers by
/// being a member of one that is registered; `cluster::Simulation` is the root.
namespace spillway::sim {

/// The default search range of an optimizer.
struct Search {
  double low = 0;
  double high = 0;
  bool log = false;
};

struct TypeInfo;

/// One setting of a structure. `fields` creates it by `field(name, member, doc)` and completes it
/// with the functions below.
struct FieldInfo {
  std::string_view name;
  std::string_view doc;
  const TypeInfo* type = nullptr;
  std::size_t offset = 0;  ///< of the member within its structure, in bytes
  std::string_view unit_name{};
  Range valid{};
  Search search_range{};
  bool is_dimensionless = false;
  bool is_runtime = false;
  bool is_hidden = false;

  /// The unit of the number, or of the numbers in a list.
  FieldInfo& unit(std::string_view text) {
    unit_name = text;
    return *this;
  }
  /// Marks a number without a unit: a share, a factor, a weight.
  FieldInfo& dimensionless() {
    is_dimensionless = true;
    return *this;
  }
  FieldInfo& range(Range allowed) {
    valid = allowed;
    return *this;
  }
  FieldInfo& search(double low, double high) {
    search_range = {low, high, false};
    return *this;
  }
  FieldInfo& log_search(double low, double high) {
    search_range = {low, high, true};
    return *this;
  }
  /// Marks a setting that may change during a run.
  FieldInfo& runtime() {
    is_runtime = true;
    return *this;
  }
  /// Marks a member that is carried along but neither written nor documented.
  FieldInfo& hidden() {
    is_hidden = true;
    return *this;
  }
};

}  // namespace spillway::sim
