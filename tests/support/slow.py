"""What a run by default leaves out: sweeps that ask the same of more couplings, graphs or schemes.

A run by default (`-m "not slow"`, see pyproject.toml) asks each of these laws of the cases that
stand in `SLOW`, so that every coupling, law, scheme and solver is met by some test; `-m slow` asks
the others. Tests that are always slow carry `pytest.mark.slow` themselves or have no case here.
Of these, `-m sweep` asks what would take longest: all cases but those that stand in `SWEEPS`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

# One coupling by hand, one by its poses, one by its errors.
KINDS = ("hinge", "screw", "point on sphere")
# Of ArtiSynth's couplings one with coordinates, one from one side, one with an origin of its own.
ARTISYNTH = ("universal ZY transposed 0.35", "plane one-sided 0.6,0,0.8", "fixed axis")
LOWER_PAIRS = ("ball/two/B", "hinge/two/B", "slider/two/B", "fixed/two/B")
FUNCTIONS = ("so3_exp", "so3_log", "compose", "log", "transform_wrench")
GRAPHS = ("chain", "ring")
# Couplings written in all ways, whose derivations are not the longest programs. The derivatives of
# the others are compiled once, in the slow run.
WRENCHES = (
    *("hinge", "tilted hinge", "screw", "point on sphere", "slider", "ball", "universal", "planar"),
    *("gimbal by hand", "slotted hinge by hand", "segmented plane point", "fixed axis", "rope"),
    *("rolling sphere", "rolling disc", "linear motor", "spur gear", "bevel gear", "double ball"),
    *("constant velocity", "ball by rotation", "free with angles", "bead on an egg"),
)


@dataclass(frozen=True)
class But:
    """All cases of a test but these."""

    cases: tuple[str, ...]

    def __contains__(self, case: str) -> bool:
        return case not in self.cases

    def __iter__(self) -> Iterator[str]:
        return iter(self.cases)


# The couplings whose programs take longest to compile: over seven seconds each.
LONGEST = But(
    (
        *("arm of three", "bead on a wire", "bead on a hill", "function driven"),
        *("prismatic universal", "gimbal", "hinge errors", "released universal"),
        *("declared slotted hinge", "slotted hinge errors", "double hinge"),
    )
)

CHARTS = (
    *("prismatic universal", "reversed prismatic rotoide", "hinge 2", "double hinge"),
    *("function driven", "bead on a wire", "bead on a hill"),
)

Cases = tuple[str, ...] | But
# By file and test, the cases that are no sweeps, by their ids.
SWEEPS: dict[str, dict[str, Cases]] = {
    "couplings/test_couplings.py": dict.fromkeys(
        (
            "test_batches_equal_loops",
            "test_single_precision_comes_close",
            "test_gradients_are_transposed_derivatives_and_finite",
        ),
        LONGEST,
    ),
    "couplings/test_swings.py": {
        "test_joints_hold_while_they_swing": But(CHARTS),
        **dict.fromkeys(
            (
                "test_constraint_forces_do_no_work",
                "test_energy_stays_and_its_error_is_of_first_order",
            ),
            But(tuple(f"{name}-{name}" for name in CHARTS)),
        ),
    },
    "schemes/test_dynamics.py": {
        "test_trailing_batch_equals_loop": ("some leaves",),
        "test_vmap_equals_trailing_batch": ("all leaves",),
        "test_batch_axes_nest": (),
    },
    "schemes/test_gradients.py": {
        "test_an_entry_of_inertia_that_moves_alone_moves_all_schemes_as_its_derivative_says": (
            "RungeKutta",
        ),
        "test_gradients_agree_with_jax_check": (),
        "test_gradient_of_a_rollout_is_that_of_its_steps": (),
    },
    "schemes/test_schemes.py": {
        "test_order_of_convergence": But(("four-bar-RK4", "carousel-RK4", "carousel-RATTLE")),
    },
    "simulate/test_simulate.py": {
        "test_checkpoints_change_neither_value_nor_gradient": ("4",),
    },
}
# By file and test, the cases that are not slow, by their ids.
SLOW: dict[str, dict[str, Cases]] = {
    "algebra/test_dense.py": {
        "test_products_match_numpy": tuple(
            f"{product}-trailing2-float64"
            for product in (
                *("product", "product_transposed", "transposed_product"),
                *("multiply", "multiply_transposed"),
            )
        ),
        "test_inverse_undoes_the_matrix": ("1-trailing0-float32", "6-trailing5-float64"),
        "test_cholesky_inverse_whitens": ("1-trailing0-float32", "6-trailing5-float64"),
    },
    "algebra/test_spatial.py": {
        "test_float32_derivatives_agree_with_float64": ("float64",),
        "test_batch_equals_loop_and_vmap": FUNCTIONS,
        "test_functions_keep_dtype_and_trailing_axes": tuple(
            f"shape2-float32-{name}" for name in FUNCTIONS
        ),
        "test_gradients_match_finite_differences": FUNCTIONS,
        "test_trailing_axes_of_size_one_broadcast": ("compose",),
        "test_two_derivatives_at_special_angles": ("norm-float64", "logarithm-float64"),
    },
    "build/test_builder.py": {
        "test_bodies_stand_and_move_as_coordinates_and_speeds_say": ("Universal", "Free"),
        "test_parent_is_placed_from_its_child": ("Universal",),
        "test_batch_of_starts_equals_loop": ("Universal",),
    },
    "assembly/test_problem.py": {
        "test_rows_that_aim_again_are_those_of_a_problem_of_their_own": (),
        "test_motion_does_not_depend_on_the_order_in_which_joints_are_declared": (),
    },
    "laws/test_laws.py": {
        "test_a_motor_with_friction_and_armature_runs_into_a_stop": (),
        "test_apexes_of_a_bouncing_ball": (),
        "test_a_swing_cone_holds_two_angles_and_is_felt_nowhere_else": (),
        "test_a_spring_follows_its_analytic_oscillation_to_first_order": (),
    },
    "couplings/test_couplings.py": {
        **dict.fromkeys(
            (
                "test_rows_are_the_derivative_of_errors_and_coordinates",
                "test_off_the_surface_rows_err_by_no_more_than_the_error",
                "test_drift_is_the_rate_of_the_errors_at_rest",
                "test_coordinates_of_a_pose_are_those_it_was_made_from",
                "test_errors_vanish_on_the_surface",
                "test_projection_lands_on_the_surface_and_stays_there",
                "test_errors_measure_the_way_back_to_the_surface",
                "test_wrench_rates_match_finite_differences",
                "test_free_motion_stays_free",
                "test_derivatives_match_finite_differences_off_the_surface",
                "test_values_and_derivatives_are_finite_where_charts_degenerate",
            ),
            WRENCHES,
        ),
        "test_rows_are_well_conditioned": WRENCHES,
        "test_wrenches_annihilate_free_motion_and_read_its_speed": WRENCHES,
        "test_unwrapping_of_no_rotation_takes_the_axis_of_its_neighbour": (),
        "test_rows_stay_bounded_in_gimbal_lock": (),
        "test_angles_wind_over_many_turns": ("hinge", "screw"),
        "test_motion_subspace_is_the_derivative_of_the_pose": ("hinge",),
        "test_projection_is_the_pose_with_the_projected_coordinates": ("moving plane",),
        "test_wrench_rates_are_those_of_the_rows": ("screw",),
        "test_gradients_are_transposed_derivatives_and_finite": KINDS,
        "test_wrench_rates_are_differentiable": (),
        "test_hand_written_rows_span_the_derived_ones": ("hinge", "universal"),
        "test_hand_written_rows_are_the_derived_ones_for_the_twists_they_resist": ("hinge",),
        "test_single_precision_comes_close": KINDS,
        "test_batches_equal_loops": ("hinge",),
        "test_methods_take_trailing_axes": ("hinge",),
    },
    "couplings/test_artisynth.py": dict.fromkeys(
        (
            "test_poses_are_those_of_the_coordinates",
            "test_projections_and_errors_agree",
            "test_coordinates_agree",
            "test_rows_of_coordinates_read_their_speeds",
            "test_every_row_and_distance_agrees",
            "test_mixed_rows_span_the_same",
            "test_rates_of_rows_agree",
            "test_one_sided_rows_are_rows_of_a_coordinate",
            "test_function_driven_joints_are_projected_to_the_end",
            "test_a_rotation_limit_of_unequal_maxima_is_a_gradient_that_artisynth_approximates",
        ),
        ARTISYNTH,
    ),
    "couplings/test_ode.py": {
        "test_one_step_from_each_recorded_state_meets_the_next": LOWER_PAIRS,
        "test_joint_wrenches_are_those_ode_reports": LOWER_PAIRS,
        "test_running_free_stays_on_the_recording": LOWER_PAIRS,
        "test_a_stop_is_the_implicit_euler_step_of_a_spring_and_damper": (),
        "test_the_librarys_errors_differ_from_odes_to_the_stated_order": (),
    },
    "couplings/test_paths.py": {
        "test_a_chain_takes_laws_on_every_coordinate": (),
        "test_a_bead_slides_down_a_helix_through_many_rounds": (),
        "test_shafts_of_a_constant_velocity_joint_turn_alike_at_forty_degrees": (),
        "test_the_ratio_of_shaft_speeds_is_one_or_that_of_a_universal_joint": (),
        "test_a_chain_of_two_hinges_is_a_double_hinge": (),
    },
    "couplings/test_rolling.py": {
        "test_runs_converge_to_those_of_rbdl": (),
        "test_a_point_on_a_moving_path_converges_to_rbdl": (),
        "test_a_ball_rolls_down_a_slope_at_its_acceleration": ("0.4",),
        "test_a_sliding_ball_is_set_rolling_by_an_impulse": (),
        "test_a_ball_on_a_turntable_circles_at_two_sevenths_of_its_rate": (),
        "test_a_leaning_disc_turns_steadily": (),
        "test_a_cart_on_two_rolling_discs_is_a_loop_that_rolls_down": (),
        "test_friction_of_rolling_does_no_work": (),
        "test_gradients_flow_through_rolling": (),
        "test_springs_on_all_five_coordinates_are_the_efforts_they_report": (),
        "test_a_stop_holds_a_leaning_disc": (),
        "test_soft_rows_slip_in_proportion_to_the_force": (),
        "test_single_precision_and_batches_come_close": (),
    },
    "couplings/test_swings.py": {
        "test_joints_hold_while_they_swing": (),
        "test_a_taut_rope_is_never_stretched_and_its_slack_is_of_third_order": (),
        "test_locked_gears_mesh_while_they_swing": (),
        "test_constraint_forces_do_no_work": (),
        "test_energy_stays_and_its_error_is_of_first_order": (),
    },
    "dynamics/test_acceleration.py": {
        "test_laws_act_with_what_they_give_at_once": ("<lambda>-1e-12",),
        "test_a_ball_on_the_ground_rolls_or_slides": (),
        "test_a_turning_pendulum_is_held_by_gravity_and_its_centripetal_force": (),
        "test_a_bushing_pulls_with_its_spring_and_damper": (),
        "test_an_armature_resists_the_acceleration": (),
        "test_forces_of_short_steps_are_those_at_an_instant": (),
        "test_accelerations_and_forces_are_those_of_rbdl": (),
        "test_velocities_after_an_impact_are_those_of_rbdl": (),
        "test_an_impact_takes_up_no_more_energy_than_the_speed_that_it_takes": (),
        "test_a_batch_is_its_environments": (),
        "test_derivatives_are_those_of_finite_differences": (),
    },
    "dynamics/test_inverse.py": {
        "test_forward_of_inverse_is_the_identity_and_columns_are_those_of_the_mass_matrix": (),
        "test_the_effort_of_a_crank_is_that_of_rbdl": (),
        "test_two_motors_on_a_four_bar_share_by_the_least_squares": (),
        "test_an_underactuated_cart_follows_what_it_can": (),
        "test_a_pushed_stop_takes_no_part": (),
        "test_a_batch_in_single_precision_is_near_its_environments": (),
        "test_derivatives_are_those_of_finite_differences": (),
    },
    "dynamics/test_joint_coordinates.py": {
        "test_the_rate_of_the_mass_matrix_less_twice_coriolis_is_skew": (),
        "test_energy_power_and_momentum_are_those_of_the_bodies": (),
        "test_the_matrix_of_a_loop_is_that_of_its_tree_as_rbdl_has_it": (),
        "test_matrices_and_forces_are_those_of_pinocchio": (),
        "test_a_batch_in_single_precision_is_near_its_environments": (),
    },
    "dynamics/test_linear.py": {
        "test_the_model_of_a_damped_pendulum_is_that_of_its_equation": (),
        "test_the_model_of_a_step_is_the_derivative_of_the_step": (),
        "test_the_model_of_a_loop_is_the_derivative_of_its_crank": (),
        "test_a_pendulum_rests_where_a_torque_holds_it_and_moves_with_the_torque": (),
        "test_a_batch_is_its_environments": (),
        "test_an_upright_pole_is_an_operating_point_that_is_not_stable": (),
        "test_efforts_are_those_of_the_actuated": (),
    },
    "models/test_archive.py": {
        "test_a_system_and_its_motion_come_back_as_they_were": (),
    },
    "models/test_export.py": {
        "test_a_robot_that_is_exported_accelerates_as_pinocchio_says": (),
    },
    "models/test_fuzz.py": dict.fromkeys(
        ("test_mutated_urdf_loads_or_is_refused", "test_mutated_mjcf_loads_or_is_refused"), ("100",)
    ),
    "models/test_mjcf.py": {
        "test_a_model_of_everything_moves_as_in_mujoco": (),
        "test_gymnasiums_models_accelerate_as_in_mujoco": ("inverted_pendulum.xml",),
        "test_hinges_that_meet_in_a_point_are_the_joint_of_their_axes": But(
            ("right-handed", "skew three")
        ),
        "test_equalities_close_loops_and_couple_coordinates": (),
        "test_slides_and_a_hinge_in_a_plane_are_a_planar_joint": ("0 -1 0-order1",),
        "test_a_ball_rests_on_a_plane_as_deep_as_in_mujoco": ("flat pyramid in a margin",),
        "test_round_geoms_touch_each_other_on_request": (),
    },
    "models/test_robot_dynamics.py": {
        "test_a_robot_has_the_dynamics_that_pinocchio_computes": ("go2",),
        "test_a_robot_has_the_dynamics_that_mujoco_computes": ("go2",),
        "test_joints_that_mimic_others_accelerate_as_the_independent_ones_do": ("panda",),
    },
    "models/test_robots.py": {
        "test_a_robot_stands_and_accelerates_as_in_pinocchio": ("asr_twodof_description-TwoDofs",),
    },
    "models/test_urdf.py": {
        "test_accelerations_are_those_of_pinocchio": (),
        "test_a_mimic_starts_and_stays_where_it_mimics": (),
    },
    "laws/test_constraints.py": {
        "test_a_constraint_accelerates_a_body_as_the_joint_does": (),
        "test_rows_are_those_that_rbdl_recorded": ("rolling_ball",),
    },
    "laws/test_contact.py": {
        "test_balls_bounce_to_heights_that_their_restitution_says": (),
        "test_a_box_sticks_and_slips_on_either_side_of_its_friction": (),
        "test_a_ball_rolls_down_a_slope": (),
        "test_forces_of_all_contacts_sum_to_the_weight": (),
        "test_info_gives_the_wrenches_of_all_contacts_on_a_body": (),
        "test_a_stack_of_two_balls_carries_its_weight": (),
        "test_a_belt_drags_a_ball_until_that_rolls": (),
        "test_capsules_collide_without_a_change_of_momentum_and_lose_energy": (),
        "test_derivatives_through_an_impact_are_finite_differences": (),
    },
    "laws/test_contact_gradients.py": {
        "test_derivatives_of_a_contact_are_those_of_finite_differences": (),
        "test_every_number_of_the_laws_counts_in_a_case": (),
    },
    "laws/test_driven_joints.py": {
        "test_a_loop_joint_moves_as_a_tree_joint_does": (),
        "test_a_motor_pushes_a_joint_into_its_stop": (),
    },
    "laws/test_engagement.py": {
        "test_scenes_of_artisynth_one_step_ahead": (),
        "test_tolerance_ends_chattering": (),
        "test_oscillation_between_two_limits": (),
        "test_derivatives_are_those_of_what_is_engaged": (),
    },
    "laws/test_fields.py": {
        "test_derivatives_by_parameters_and_by_the_motion": ("drag",),
        "test_derivatives_of_a_step_by_strengths_and_velocities": (),
        "test_quadratic_drag_follows_its_closed_form": (),
        "test_drag_takes_energy_from_jointed_bodies_however_strong": (),
        "test_fields_of_a_batch_equal_those_of_its_environments": (),
    },
    "laws/test_friction.py": {
        "test_friction_follows_the_weight": ("coupled",),
        "test_gradient_of_sliding_matches_finite_differences": (),
        "test_both_ways_agree_where_friction_does_not_change_the_normal_forces": (),
    },
    "laws/test_law_gradients.py": {
        "test_derivatives_of_a_law_are_those_of_finite_differences": (),
    },
    "laws/test_ode_contact.py": {
        "test_one_step_from_each_recorded_state_is_odes": ("sphere_plane",),
        "test_running_free_stays_on_the_recording": (),
    },
    "laws/test_redundant_contacts.py": {
        "test_both_modes_agree_and_are_finite_differences": (),
        "test_boxes_at_rest_stay_for_ten_seconds": (),
    },
    "laws/test_softness.py": {
        "test_errors_of_what_holds_several_bodies_decay_alike": ("transmission",),
        "test_each_row_of_a_bushing_is_an_implicit_spring_and_damper": ("0", "5"),
        "test_a_spring_is_the_same_at_any_time_step_and_erp_with_cfm_is_not": (),
    },
    "laws/test_transmissions.py": {
        "test_a_tendon_is_a_rope_over_two_joints": (),
        "test_a_rack_moves_with_its_pinion": (),
        "test_a_differential_shares_the_torque_of_its_ring_equally": (),
        "test_a_gear_pair_reflects_inertia_by_the_square_of_its_ratio": (),
        "test_links_of_a_chain_swing_as_their_lagrangian_says": (),
        "test_a_coupled_arm_keeps_its_value_and_its_energy": (),
        "test_projection_moves_joints_onto_a_transmission": (),
        "test_a_loop_joint_can_be_coupled": (),
        "test_gradients_reach_a_followers_function": (),
        "test_like_transmissions_make_one_group_and_keep_their_own_numbers": (),
    },
    "project/test_docstrings.py": {
        "test_examples_print_what_they_say": But(
            tuple(
                f"jaxjoints.{name}"
                for name in (
                    "dynamics.linear.linear_model",
                    "dynamics.inverse.inverse_dynamics",
                    "tools.closure.inverse_kinematics",
                )
            )
        ),
    },
    "project/test_examples.py": {
        "test_what_the_poses_tell_is_found_to_a_percent": (),
        "test_what_the_poses_do_not_tell_is_said": (),
        "test_speed_and_noise_are_shown": (),
        "test_the_figure_has_motions_and_losses": (),
    },
    "project/test_gallery.py": {
        "test_arrows_are_the_columns_of_the_motion_subspace": (),
        "test_a_family_is_drawn": (),
    },
    "project/test_docs.py": {
        "test_the_slotted_hinge_is_the_one_written_by_hand": (),
        "test_the_point_on_the_ellipsoid_is_held_along_its_normal": (),
    },
    "project/test_readme.py": {
        "test_the_screw_stays_on_its_thread": (),
        "test_the_gradient_of_the_screw_is_that_of_finite_differences": (),
    },
    "schemes/test_restart.py": {
        "test_a_projection_takes_velocities_along": (),
        "test_restarted_motion_converges_like_the_motion_itself": (),
    },
    "schemes/test_dynamics.py": {
        "test_trailing_batch_equals_loop": (),
        "test_stop_that_does_not_anticipate_is_passed_by_one_step": (),
        "test_hard_stop_corrects_a_violation_no_faster_than_allowed": (),
        "test_vmap_equals_trailing_batch": (),
        "test_batch_axes_nest": (),
        "test_disconnected_mechanisms_do_not_feel_each_other": (),
        "test_bead_on_sphere_circles_as_conical_pendulum": (),
        "test_anticipating_stop_is_reached_and_never_passed": (),
        "test_laws_on_one_coordinate_add_up": (),
        "test_prescribed_base_is_not_moved_by_forces": (),
        "test_dry_friction_decelerates_to_rest_and_stays": (),
        "test_projected_four_bar_stays_closed_for_ten_seconds": (),
        "test_redundant_hinges_act_as_one": (),
        "test_free_chain_conserves_momentum": (),
        "test_gyroscopic_terms_of_ode_conserve_angular_momentum_to_first_order": (),
        "test_constraint_forces_do_no_work": ("four-bar",),
        "test_pendulum_energy_drifts_to_first_order": (),
        "test_screw_turns_fall_into_rotation": (),
        "test_surface_that_moves_with_time_takes_its_body_along": (),
        "test_every_leaf_of_the_system_carries_a_batch_of_unlike_numbers": (),
        "test_double_pendulum_converges_to_minimal_coordinates": (),
    },
    "schemes/test_gradients.py": {
        "test_stops_are_left_and_hit_on_the_way": (),
        "test_gradient_of_smoothed_stop_matches_finite_difference": (),
        "test_gradient_matches_finite_difference": (),
        "test_smoothing_lets_a_gradient_feel_a_stop_before_it_is_touched": (),
        "test_reverse_equals_forward": (),
        "test_gradient_of_a_rollout_is_that_of_its_steps": (),
        "test_a_gradient_iterates_no_more_than_its_rollout": (),
        "test_gradients_agree_with_jax_check": (),
        "test_an_entry_of_inertia_that_moves_alone_moves_all_schemes_as_its_derivative_says": (),
        "test_second_derivatives_match_differences_of_the_first": (),
    },
    "schemes/test_ode_joints.py": {
        "test_one_step_from_each_recorded_state_meets_the_next": (),
        "test_running_free_stays_on_the_recording": (),
        "test_joint_wrenches_are_those_ode_reports": (),
        "test_every_row_of_ode_is_one_of_the_librarys": (),
        "test_ode_leaves_a_motor_at_its_stop_out_of_its_report": (),
        "test_ode_bounces_a_slider_by_the_speed_of_the_centres_and_not_of_the_coordinate": (),
        "test_odes_gears_on_intersecting_axes_drive_their_error_apart": (),
        "test_the_librarys_joints_differ_from_odes_to_the_stated_order": (),
    },
    "schemes/test_schemes.py": {
        "test_a_rotor_is_inertia_under_rk4": (),
        "test_order_of_convergence": (),
        "test_joints_are_closed_at_the_end_of_a_step": (),
        "test_rattle_in_single_precision_is_near": (),
        "test_rattle_at_5_ms_is_near_the_exact_motion_after_1_s": (),
        "test_energy_of_rattle_does_not_drift_in_100_s": (),
        "test_rattle_turns_a_free_body_with_its_momentum": (),
        "test_a_spring_takes_a_block_off_a_stop": (),
        "test_tiles_of_rattle_are_its_environments": (),
        "test_gradient_of_rattle_through_a_loop": (),
    },
    "schemes/test_switches.py": {
        "test_switches_count_in_single_precision": (),
        "test_an_engaged_lock_holds_its_value": (),
        "test_a_joint_that_is_off_does_nothing_to_its_bodies": ("Euler",),
        "test_a_transmission_can_be_switched": (),
        "test_what_is_on_and_not_locked_is_as_what_cannot_be_switched": (),
        "test_a_joint_that_is_off_exerts_no_force_and_is_not_closed": (),
    },
    "simulate/test_door.py": {
        "test_noise_and_memory_do_not_depend_on_tiles_nor_on_pieces": (),
        "test_gradients_reach_its_parameters": (),
        "test_a_loop_whose_speeds_do_not_fit_is_told": (),
        "test_a_function_defined_anew_is_told_once": (),
    },
    "simulate/test_guard.py": {
        "test_gradients_are_those_of_the_sound_environments": (),
        "test_a_step_that_fails_leaves_no_trace_in_gradients": (),
    },
    "simulate/test_parallel.py": {
        "test_rollouts_on_two_cores_equal_those_on_one_and_compile_once": (),
        "test_tiles_change_nothing": ("3",),
    },
    "simulate/test_readout.py": {
        "test_limits_push_apart_from_the_springs": (),
        "test_limits_carry_what_presses_against_them": ("Euler",),
        "test_energy_of_a_springy_pendulum_is_conserved_to_first_order": (),
        "test_readings_of_a_batch_are_those_of_each_environment": (),
    },
    "simulate/test_repeatable.py": {
        "test_tiles_give_the_same_bits": ("4",),
        "test_another_batch_size_gives_the_same_numbers": ("3",),
        "test_a_rollout_goes_on_after_a_pause_as_if_there_were_none": ("Euler",),
    },
    "simulate/test_simulate.py": {
        "test_rollout_equals_repeated_step": (),
        "test_substeps_hold_the_control": ("4",),
        "test_controller_parameters_have_gradients": (),
        "test_projection_returns_to_violated_hard_stops_alone": ("hard",),
        "test_results_do_not_depend_on_the_tile": ("2",),
        "test_checkpoints_change_neither_value_nor_gradient": (),
        "test_checkpoints_bound_the_memory_of_a_gradient": (),
        "test_transformations_compose": (),
        "test_quaternions_of_any_length_turn_bodies_alike": (),
        "test_float32_stays_float32": ("build1", "four_bar"),
        "test_projection_closes_a_perturbed_four_bar": ("()",),
    },
    "solve/test_accuracy.py": {
        "test_exact_solutions_obey_all_laws": ("dry friction",),
        "test_problems_are_solved_to_rounding": ("dry friction",),
        "test_single_precision_is_as_exact_as_the_condition_allows": ("dry friction",),
        "test_chains_that_go_round_in_circles_are_rescued": (),
        "test_coupled_friction_obeys_its_laws_where_the_residual_says_so": (),
        "test_coupled_friction_has_the_derivative_of_its_laws": (),
    },
    "solve/test_factor.py": {
        "test_solves_what_the_dense_matrix_solves": GRAPHS,
        "test_solves_for_every_number_of_rows": ("1", "6"),
        "test_solves_for_every_batch_shape_and_precision": ("float32-batch0", "float64-batch2"),
        "test_rows_that_nodes_do_not_have_are_left_out": GRAPHS,
        "test_a_general_matrix_and_its_transpose_are_solved": ("True-ring",),
    },
    "solve/test_gauss_seidel.py": {
        "test_one_step_from_each_recorded_state_meets_the_next": ("quickstep/hinge/iter8",),
        "test_visits_are_those_of_a_plain_loop": ("with_all_laws",),
        "test_derivatives_are_those_of_the_visits": (),
        "test_many_visits_meet_newtons_method": (),
        "test_the_program_does_not_grow_with_the_rows": (),
    },
    "solve/test_newton.py": {
        "test_what_an_environment_gets_does_not_depend_on_its_neighbours": (),
        "test_rows_are_independent_in_trees_of_joint_errors_alone": ("limits", "loop"),
        "test_trees_at_the_end_of_float32_stay_near_those_of_float64": ("point masses",),
    },
    "solve/test_solver_derivatives.py": {
        "test_first_derivatives_match_finite_differences": ("0.0-implicit-limited",),
        "test_second_derivatives_match_differences_of_the_first": (),
        "test_derivatives_stay_finite_where_a_row_changes_state": (),
        "test_a_batch_of_gradients_is_the_gradient_of_a_batch": (),
        "test_both_derivatives_are_the_same_where_the_iteration_has_ended": (),
    },
    "tools/test_closure.py": {
        "test_a_slider_crank_stands_and_moves_by_its_formula": ("2.5",),
        "test_a_five_bar_leg_puts_its_foot_where_it_can": (),
        "test_curves_of_a_coupler_have_the_slopes_of_differences": (),
        "test_limits_hold_where_a_point_is_beyond_them": (),
        "test_hundreds_of_seeds_reach_a_point_within_limits": (),
    },
    "environments/test_environments.py": {
        **dict.fromkeys(
            (
                "test_an_episode_begins_as_it_should",
                "test_a_step_is_rewarded_by_its_parts",
                "test_a_restart_is_a_fresh_reset_with_its_key",
            ),
            (),
        ),
        "test_noise_depends_on_keys_alone": (),
        "test_other_numbers_compile_nothing_anew": (),
        "test_noise_of_observations_has_its_deviation": (),
        "test_an_end_is_no_truncation": (),
        "test_a_policy_defined_anew_is_told": (),
        "test_a_policy_controls_a_rollout": (),
        "test_a_batch_of_mechanisms_is_each_of_them": (),
        "test_gradient_through_a_soft_stop_is_that_of_finite_differences": (),
    },
    "environments/test_gymnasium.py": {
        "test_gymnasiums_checker_is_content": (),
    },
    "identification/test_identify.py": {
        "test_velocities_from_poses_are_those_that_moved_the_bodies": ("exponential",),
        "test_the_truth_leaves_no_residuals": ("0.3",),
        "test_following_fully_is_predicting_one_step": (),
        "test_of_a_product_only_the_product_is_told": (),
        "test_residuals_are_traced_once_and_every_iteration_is_reported": (),
    },
    "tools/test_joint_space.py": {
        **dict.fromkeys(
            (
                "test_motion_subspaces_are_the_derivatives_of_poses",
                "test_accelerations_are_the_rates_of_twists",
            ),
            ("universal", "free by quaternion"),
        ),
        **dict.fromkeys(
            (
                "test_twists_torques_and_biases_are_those_of_the_motion_subspace",
                "test_velocities_and_rates_are_each_others_inverse",
                "test_local_coordinates_vanish_at_their_origin_and_lead_back",
                "test_normalized_configurations_have_the_same_pose",
                "test_wrenches_do_no_work_on_free_motion",
                "test_configurations_are_read_back_from_their_poses",
                "test_principal_values_keep_the_pose",
            ),
            ("hinge by sine and cosine", "free by quaternion"),
        ),
        "test_gradients_match_finite_differences": (),
        "test_the_zero_configuration_has_the_pose_of_zero_coordinates": (),
    },
    "tools/test_rigidbodydynamics.py": {
        "test_everything_is_as_its_interface_says": ("Planar",),
    },
    "viewing/test_browser.py": {
        "test_hundreds_of_bodies_fit": (),
        "test_a_browser_draws_every_layer_and_plots": (),
    },
    "viewing/test_plots.py": {
        "test_coordinates_have_their_limits_shaded_and_marks_where_these_act": (),
    },
    "viewing/test_live.py": dict.fromkeys(
        (
            "test_a_posed_linkage_is_closed",
            "test_a_running_arm_follows_the_sliders_of_its_servos",
            "test_free_bodies_stay_while_others_are_posed",
        ),
        (),
    ),
}


def mark(items: Iterable[pytest.Item], folder: str) -> list[str]:
    """Mark the tests in a folder as the tables say; what of these is no test or case of theirs.

    folder: path of the folder to which the files of the tables are relative
    """
    cases = defaultdict(lambda: defaultdict(set))
    for item in items:
        file, _, _ = item.nodeid.removeprefix(f"{folder}/").partition("::")
        test = getattr(item, "originalname", item.name)
        case = item.callspec.id if hasattr(item, "callspec") else ""
        cases[file][test].add(case)
        if case not in SWEEPS.get(file, {}).get(test, (case,)):
            item.add_marker(pytest.mark.sweep)
        elif case not in SLOW.get(file, {}).get(test, (case,)):
            item.add_marker(pytest.mark.slow)
    missing = []
    for table in (SWEEPS, SLOW):
        for file in sorted(table.keys() & cases.keys()):
            tests, named = cases[file], {case for kept in table[file].values() for case in kept}
            missing += [f"{file}: {test}" for test in table[file] if test not in tests]
            # Cases are named for several tests together, of which not all have all of them.
            missing += [f"{file}: {case}" for case in sorted(named - set().union(*tests.values()))]
    return missing
