#include "workload/names.h"

namespace spillway::workload {

std::size_t InternedNames::position(const std::string& name) {
  const auto [found, is_new] = positions_.try_emplace(name, names_.size());
  if (is_new) names_.push_back(name);
  return found->second;
}

NamedClient intern(const Client& client, Names& names) {
  NamedClient named{
      .tenant = static_cast<std::uint16_t>(names.tenants.position(client.tenant)),
      .slo_class = static_cast<std::uint16_t>(names.slo_classes.position(client.slo_class))};
  if (!client.model.empty()) {
    named.model = static_cast<std::uint16_t>(1 + names.models.position(client.model));
  }
  if (!client.prefix_group.empty()) {
    named.prefix = {names.prefix_groups.position(client.prefix_group),
                    static_cast<std::uint32_t>(client.prefix_tokens)};
  }
  return named;
}

}  // namespace spillway::workload
