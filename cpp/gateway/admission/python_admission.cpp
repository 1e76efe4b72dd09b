#include "gateway/admission/python_admission.h"

#include "gateway/admission/admission.h"
#include "gateway/admission/admission_factory.h"
#include "sim/error.h"

namespace spillway::gateway {

std::unique_ptr<AdmissionPolicy> make(const PythonAdmission& config, const Scope& scope) {
  if (!config.factory) {
    throw sim::ConfigError({sim::not_imported("gateway.admission", config.policy)});
  }
  return config.factory->make_admission(scope);
}

}  // namespace spillway::gateway
