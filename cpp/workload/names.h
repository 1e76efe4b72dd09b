#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "workload/clients.h"
#include "workload/requests.h"

namespace spillway::workload {

/// Distinct names in order of first appearance.
class InternedNames {
 public:
  /// Position of `name`, which is appended if it is new.
  std::size_t position(const std::string& name);
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> positions_;
};

/// The names that requests refer to by number, in order of the clients.
struct Names {
  InternedNames tenants;
  InternedNames slo_classes;
  InternedNames prefix_groups;
  InternedNames models;
};
/// The positions of one client's names.
struct NamedClient {
  std::uint16_t tenant = 0;
  std::uint16_t slo_class = 0;
  std::uint16_t model = 0;  ///< as in `Requests`
  Segment prefix;           ///< shared beginning of its prompts; 0 tokens: none
};
/// Adds the client's new names; returns the positions of all of them.
NamedClient intern(const Client& client, Names& names);

}  // namespace spillway::workload
