#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sim/time.h"
#include "workload/requests.h"

/// Requests of one tenant and class that all arrive at the same time.
class RequestsBuilder {
 public:
  RequestsBuilder() {
    requests_.tenants = {"default"};
    requests_.slo_classes = {"standard"};
    requests_.segment_begin.push_back(0);
  }

  void add(std::int32_t input_tokens, std::int32_t output_tokens,
           const std::vector<spillway::workload::Segment>& segments = {}) {
    requests_.arrival.push_back({});
    requests_.input_tokens.push_back(input_tokens);
    requests_.output_tokens.push_back(output_tokens);
    requests_.tenant.push_back(0);
    requests_.slo_class.push_back(0);
    requests_.segments.insert(requests_.segments.end(), segments.begin(), segments.end());
    requests_.segment_begin.push_back(static_cast<std::uint32_t>(requests_.segments.size()));
  }
  std::shared_ptr<const spillway::workload::Requests> build() && {
    return std::make_shared<spillway::workload::Requests>(std::move(requests_));
  }

 private:
  spillway::workload::Requests requests_;
};
