#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <unordered_map>

namespace spillway::sim {

/// Position of the first entry whose `name` equals the argument, or the size of the range.
template <class Range>
std::size_t index_of_name(const Range& range, const auto& name) {
  std::size_t index = 0;
  for (const auto& entry : range) {
    if (entry.name == name) break;
    ++index;
  }
  return index;
}

/// The positions of names in a range, for callers that look up many. The names must outlive the
/// index unchanged.
class NameIndex {
 public:
  NameIndex() = default;
  /// `name`: the member with the name, or a function from an entry to its name.
  template <class Range, class Name>
  NameIndex(const Range& range, const Name& name) {
    first_.reserve(std::size(range));
    for (const auto& entry : range) add(std::invoke(name, entry));
  }
  /// The range has another entry.
  void add(std::string_view name) { first_.try_emplace(name, size_++); }

  /// Position of the first entry with that name, or the size of the range.
  std::size_t of(std::string_view name) const {
    const auto found = first_.find(name);
    return found == first_.end() ? size_ : found->second;
  }
  bool has(std::string_view name) const { return first_.contains(name); }
  /// Number of distinct names.
  std::size_t num_names() const { return first_.size(); }

 private:
  std::unordered_map<std::string_view, std::size_t> first_;
  std::size_t size_ = 0;
};

}  // namespace spillway::sim
