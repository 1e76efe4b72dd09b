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

}  // namespace spillway::sim
