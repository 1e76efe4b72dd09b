#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace spillway::sim {

/// Strong 32-bit index into the table of one kind of thing.
template <class Tag>
struct Id {
  std::uint32_t value = 0;

  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : value(static_cast<std::uint32_t>(index)) {}
  constexpr std::size_t index() const { return value; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using RequestId = Id<struct RequestTag>;
using TenantId = Id<struct TenantTag>;
using ClassId = Id<struct ClassTag>;
using InstanceId = Id<struct InstanceTag>;

/// Position of the first entry called `name` in a range of things with a `name`, or its size.
template <class Range>
std::size_t index_of_name(const Range& range, const auto& name) {
  std::size_t index = 0;
  for (const auto& entry : range) {
    if (entry.name == name) break;
    ++index;
  }
  return index;
}

}  // namespace spillway::sim
