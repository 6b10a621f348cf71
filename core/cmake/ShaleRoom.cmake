# One call per room, plugin and test.
include_guard(GLOBAL)

# Links the rooms that exist; one that is not written yet is left out, so the rest of the tree still builds.
function(_shale_link target scope)
  foreach(room IN LISTS ARGN)
    if(EXISTS ${CMAKE_SOURCE_DIR}/core/${room}/CMakeLists.txt)
      target_link_libraries(${target} ${scope} shale_${room})
    endif()
  endforeach()
endfunction()

# A listed source that is not there is a warning while the tree grows, and the link tells what is missing.
function(_shale_sources out)
  set(present)
  foreach(source IN LISTS ARGN)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source} OR IS_ABSOLUTE ${source})
      list(APPEND present ${source})
    else()
      message(WARNING "${CMAKE_CURRENT_SOURCE_DIR}/${source} is listed but not there")
    endif()
  endforeach()
  set(${out} ${present} PARENT_SCOPE)
endfunction()

# shale_room(<name> [SOURCES a.cpp ...] [DEPENDS room ...] [LIBS target ...] [PRIVATE_LIBS target ...])
# The static library shale_<name>, headers as "core/<name>/x.h". Without sources: headers only.
# A room that uses torch says so: LIBS LibTorch::cpu.
function(shale_room name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LIBS;PRIVATE_LIBS" ${ARGN})
  _shale_sources(arg_SOURCES ${arg_SOURCES})
  if(arg_SOURCES)
    add_library(shale_${name} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    target_compile_options(shale_${name} PRIVATE -Wall -Wextra)
    target_link_libraries(shale_${name} PRIVATE ${arg_PRIVATE_LIBS})
  else()
    add_library(shale_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(shale_${name} ${scope} ${CMAKE_SOURCE_DIR})
  target_link_libraries(shale_${name} ${scope} ${arg_LIBS} Threads::Threads)
  _shale_link(shale_${name} ${scope} ${arg_DEPENDS})
endfunction()

# shale_cuda_library(<name> SOURCES ... [DEPENDS room ...])
# lib<name>.so in <build>/lib, the CUDA half of a room, opened only when a config asks for a GPU. Left out, with a
# line, where the wheel has no CUDA or the CUDA or NCCL headers are missing.
find_path(SHALE_CUDA_INCLUDE cuda_runtime_api.h HINTS ${NVIDIA_ROOT}/cu13/include ${NVIDIA_ROOT}/cuda_runtime/include
          /usr/local/cuda/include)
find_path(SHALE_NCCL_INCLUDE nccl.h HINTS ${NVIDIA_ROOT}/nccl/include) # the wheel's own NCCL comes first
function(shale_cuda_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LIBS" ${ARGN})
  if(NOT TARGET LibTorch::cuda OR NOT SHALE_CUDA_INCLUDE OR NOT SHALE_NCCL_INCLUDE)
    message(STATUS "${name}: left out (needs a torch with CUDA, cuda_runtime_api.h and nccl.h)")
    return()
  endif()
  add_library(${name} SHARED ${arg_SOURCES})
  target_compile_options(${name} PRIVATE -Wall -Wextra)
  target_include_directories(${name} SYSTEM PRIVATE ${SHALE_NCCL_INCLUDE} ${SHALE_CUDA_INCLUDE})
  target_link_libraries(${name} PRIVATE LibTorch::cuda ${arg_LIBS})
  _shale_link(${name} PRIVATE ${arg_DEPENDS})
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib
                        INSTALL_RPATH "${LIBTORCH_LIB_DIR}")
  install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/shale)
endfunction()

# shale_plugin(<kind>_<name> SOURCES ...): a built-in plugin, <build>/plugins/<kind>_<name>.so, through the public SDK.
include(${CMAKE_SOURCE_DIR}/sdk/cmake/ShalePlugin.cmake)
add_custom_target(shale_plugins) # all of them
function(shale_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  shale_add_plugin(${name} ${arg_SOURCES})
  target_compile_options(${name} PRIVATE -Wall -Wextra)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
  add_dependencies(shale_plugins ${name})
  install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/shale/plugins)
endfunction()

# Time limit, and how many of ctest's parallel places a test takes: as many as it has ranks.
function(_shale_test_limits name timeout processors)
  if(NOT timeout)
    set(timeout 120)
  endif()
  if(NOT processors)
    set(processors 1)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} PROCESSORS ${processors}
                       ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()

# shale_test(<name> SOURCES x_test.cpp ... [DEPENDS room ...] [LIBS target ...] [TIMEOUT seconds] [PROCESSORS n])
# One executable <name>_test with GoogleTest's main, one ctest of the same name.
function(shale_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;PROCESSORS" "SOURCES;DEPENDS;LIBS" ${ARGN})
  _shale_sources(arg_SOURCES ${arg_SOURCES})
  if(NOT arg_SOURCES)
    return()
  endif()
  find_package(GTest REQUIRED)
  string(REGEX REPLACE "_test$" "" target ${name})
  set(target ${target}_test)
  add_executable(${target} ${arg_SOURCES})
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest GTest::gtest_main)
  _shale_link(${target} PRIVATE ${arg_DEPENDS})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${target} COMMAND ${target})
  _shale_test_limits(${target} "${arg_TIMEOUT}" "${arg_PROCESSORS}")
endfunction()

# shale_script_test(<name> COMMAND word ... [TIMEOUT seconds] [PROCESSORS n])
# One ctest that runs a script; SHALE_PYTHON is the Python that has torch, transformers and safetensors.
cmake_path(SET SHALE_PYTHON NORMALIZE ${LIBTORCH_ROOT}/../../../../bin/python3)
if(NOT EXISTS ${SHALE_PYTHON})
  set(SHALE_PYTHON python3)
endif()
function(shale_script_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;PROCESSORS" "COMMAND" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  _shale_test_limits(${name} "${arg_TIMEOUT}" "${arg_PROCESSORS}")
endfunction()
