#include "cluster/config.h"

#include "sim/ids.h"

namespace spillway::cluster {

namespace {

template <class Named>
void check_unique(const std::vector<Named>& all, const std::string& path,
                  std::vector<sim::Violation>& out) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (sim::index_of_name(all, all[i].name) < i) {
      out.push_back(
          {sim::index_path(path, i) + ".name", "'" + all[i].name + "'", "must be unique"});
    }
  }
}

template <class Named>
void check_known(const std::string& name, const std::vector<Named>& all, const std::string& path,
                 const char* what, std::vector<sim::Violation>& out) {
  if (sim::index_of_name(all, name) < all.size()) return;
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (const Named& one : all) names.push_back(one.name);
  out.push_back({path, "'" + name + "'",
                 std::string("is none of the ") + what + sim::did_you_mean(name, names)});
}

}  // namespace

void Simulation::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  check_unique(tenants, sim::join_path(path, "tenants"), out);
  check_unique(slo_classes, sim::join_path(path, "slo_classes"), out);
  if (instances.empty()) {
    out.push_back({sim::join_path(path, "instances"), "[]", "must hold at least one group"});
  }
  if (horizon_s && *horizon_s <= warm_up_s) {
    out.push_back({sim::join_path(path, "warm_up_s"), sim::to_text(warm_up_s),
                   "must be < horizon_s (" + sim::to_text(*horizon_s) + ")"});
  }
  if (metrics.streaming && metrics.traced_candidates > 0) {
    out.push_back({sim::join_path(path, "metrics.traced_candidates"),
                   std::to_string(metrics.traced_candidates),
                   "must be 0 in streaming mode, which keeps nothing per request"});
  }
  // A trace brings its own tenants and classes; a client that is configured here must mean existing
  // ones.
  const auto* synthetic = std::get_if<workload::Synthetic>(&workload);
  for (std::size_t i = 0; synthetic && i < synthetic->clients.size(); ++i) {
    const workload::Client& client = synthetic->clients[i];
    const std::string here = sim::index_path(sim::join_path(path, "workload.clients"), i);
    check_known(client.slo_class, slo_classes, here + ".slo_class", "slo_classes", out);
    if (!tenants.empty()) check_known(client.tenant, tenants, here + ".tenant", "tenants", out);
  }
}

}  // namespace spillway::cluster
