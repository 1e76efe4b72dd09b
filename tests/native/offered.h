#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_table.h"
#include "workload/requests.h"

/// A request with its tenant and class.
struct Offered {
  std::uint16_t tenant = 0;
  std::uint16_t slo_class = 0;
  double arrival_s = 0;
  std::int32_t input_tokens = 10;
  std::int32_t output_tokens = 10;
};

/// The columns of the requests, in order.
inline std::shared_ptr<const spillway::workload::Requests> make_requests(
    const std::vector<Offered>& offered, const std::vector<spillway::workload::Tenant>& tenants,
    const std::vector<spillway::workload::SloClass>& slo_classes) {
  auto requests = std::make_shared<spillway::workload::Requests>();
  for (const auto& tenant : tenants) requests->tenants.push_back(tenant.name);
  for (const auto& slo_class : slo_classes) requests->slo_classes.push_back(slo_class.name);
  for (const Offered& request : offered) {
    requests->arrival.push_back(spillway::sim::from_seconds(request.arrival_s));
    requests->input_tokens.push_back(request.input_tokens);
    requests->output_tokens.push_back(request.output_tokens);
    requests->tenant.push_back(request.tenant);
    requests->slo_class.push_back(request.slo_class);
  }
  return requests;
}

/// A table of the requests, whose ids count from 0.
inline std::unique_ptr<spillway::workload::RequestTable> make_table(
    const std::vector<Offered>& offered, std::vector<spillway::workload::Tenant> tenants = {{}},
    std::vector<spillway::workload::SloClass> slo_classes = {{}}) {
  auto requests = make_requests(offered, tenants, slo_classes);
  return std::make_unique<spillway::workload::RequestTable>(
      std::move(requests), std::move(tenants), std::move(slo_classes), spillway::sim::Time{0});
}

using Ids = std::vector<std::size_t>;

inline Ids ids(const std::vector<spillway::sim::RequestId>& requests) {
  Ids all;
  all.reserve(requests.size());
  for (const spillway::sim::RequestId id : requests) all.push_back(id.index());
  return all;
}

/// A view of a fleet without instances, for decisions that read none.
inline spillway::signals::View view_of_nothing() {
  static const spillway::signals::Sources sources;
  static const spillway::signals::LocalState local;
  return {sources, local, spillway::sim::Time{0}};
}
