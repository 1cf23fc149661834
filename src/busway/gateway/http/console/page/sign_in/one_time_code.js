/** A code that `busway console` has put behind the `#`: good once, and taken out of the address at once. */
import { connect } from "../bus/live.js";
import { askJson, farewell } from "../bus/session.js";

/**
 * Signs in by the code in the address, if there is one.
 * @returns {Promise<boolean>} whether there was one
 */
export async function signInByCode() {
  const code = /^#code=([\w-]{1,64})$/.exec(location.hash)?.[1];
  if (!code) return false;
  history.replaceState(null, "", `${location.pathname}#/`);
  try {
    const { token, below } = await askJson("POST", "/$console/codes/redeem", { json: { code } });
    await connect({ token, below });
  } catch (error) {
    farewell.set(error.message);
  }
  return true;
}
